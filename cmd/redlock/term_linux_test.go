package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// console is a terminal, seen from the keyboard and the screen.
type console struct {
	t      *testing.T
	master *os.File
	mu     sync.Mutex // guards screen
	screen bytes.Buffer
}

// onConsole makes a process the leader of a session on a terminal of its own.
func onConsole(t *testing.T) (*console, setup) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	c := &console{t: t, master: master}
	var n int
	c.control(func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	})
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	var reader sync.WaitGroup
	reader.Go(func() {
		buf := make([]byte, 4096)
		for {
			k, err := master.Read(buf)
			c.mu.Lock()
			c.screen.Write(buf[:k])
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = slave.Close()
		_ = master.Close() // hangs up, which ends what is left on it
		reader.Wait()
	})
	return c, func(cmd *exec.Cmd) {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
}

// control runs an ioctl. Not by Fd, which would make a blocked read last for ever.
func (c *console) control(f func(fd int) error) {
	c.t.Helper()
	raw, err := c.master.SyscallConn()
	require.NoError(c.t, err)
	var failed error
	require.NoError(c.t, raw.Control(func(fd uintptr) { failed = f(int(fd)) }))
	require.NoError(c.t, failed)
}

// foreground waits until a process's group has the terminal.
func (c *console) foreground(pid int) {
	c.t.Helper()
	pgid := 0
	for end := time.Now().Add(patience); pgid != pid; time.Sleep(time.Millisecond) {
		require.True(c.t, time.Now().Before(end), "the terminal belongs to group %d, not to %d", pgid, pid)
		c.control(func(fd int) (err error) {
			pgid, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
			return err
		})
	}
}

func (c *console) types(s string) {
	c.t.Helper()
	_, err := c.master.WriteString(s)
	require.NoError(c.t, err)
}

// shows waits for a text on the screen.
func (c *console) shows(s string) {
	c.t.Helper()
	seen := func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.screen.String()
	}
	for end := time.Now().Add(patience); !strings.Contains(seen(), s); time.Sleep(time.Millisecond) {
		require.True(c.t, time.Now().Before(end), "%q is not on the screen:\n%s", s, seen())
	}
}

// shell runs a script whose $@ is a redlock command, on a console.
func shell(script string, console setup, ws *witnesses) []setup {
	return []setup{witnessed(ws), func(c *exec.Cmd) {
		c.Args = append([]string{"sh", "-c", script}, append([]string{os.Args[0]}, c.Args[1:]...)...)
		c.Path = "/bin/sh"
	}, console}
}

func TestTheCommandHasTheTerminalAndGivesItBack(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	ws := newWitnesses(t)
	c, console := onConsole(t)
	r := launch(t, ns, underLock("k", "line"), shell(`"$0" "$@"; read x; echo "then $x"`, console, ws)...)
	c.types("for the command\n")
	c.shows(`line "for the command\n" <nil>`)
	c.types("for the shell\n")
	c.shows("then for the shell")
	require.Zero(t, r.code())
}

func TestCtrlCReachesTheCommandOnce(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	ws := newWitnesses(t)
	c, console := onConsole(t)
	r := launch(t, ns, underLock("k", "witness", "w"), witnessed(ws), console)
	w := ws.next()
	c.foreground(w.pid)
	c.types("\x03")
	require.Equal(t, "interrupt", await(t, "Ctrl-C", w.said))
	r.signal(syscall.SIGUSR1)
	require.Equal(t, syscall.SIGUSR1.String(), await(t, "the signal behind it", w.said), "Ctrl-C came twice")
	w.exit(9)
	require.Equal(t, 9, r.code())
}

func TestCtrlZStopsTheJobAndItsShellContinuesIt(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	ws := newWitnesses(t)
	c, console := onConsole(t)
	r := launch(t, ns, underLock("k", "witness", "w"),
		shell(`set -m; "$0" "$@"; echo "stopped with $?"; fg; echo "ended with $?"`, console, ws)...)
	w := ws.next()
	c.foreground(w.pid)
	c.types("\x1a")
	c.shows("stopped with ")
	c.foreground(w.pid)
	w.exit(9)
	c.shows("ended with 9")
	require.Zero(t, r.code())
}
