package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// process is a redis-server started by the test. It dies with the test binary, however that ends.
type process struct {
	// Set by startProcess, then read-only.
	binary     string
	cfg        config
	dir        string // its data and logs; removed with the test
	socketPath string
	port       int
	clock      *processClock // nil: the machine's

	// The present or last run; changed by up alone, which is never called at the same time as another method.
	runs   int
	pid    int
	exited chan struct{} // closed once the process has ended and was waited for
}

// processesMissing says what to install if there is no redis-server.
func processesMissing() error {
	_, err := redisServer()
	return err
}

// redisServer finds the binary.
func redisServer() (string, error) {
	name := os.Getenv("REDLOCK_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("processes need a redis-server (%w): install one (apt-get install redis-server, "+
			"brew install redis) or set REDLOCK_REDIS_SERVER to its path", err)
	}
	return path, nil
}

func startProcesses(t testing.TB, n int, cfg config) ([]node, error) {
	binary, err := redisServer()
	if err != nil {
		return nil, err
	}
	dirs := make([]string, n) // made here: TempDir fails the test, which only its own goroutine may do
	for i := range dirs {
		dirs[i] = t.TempDir()
	}
	shim := ""
	if cfg.clock {
		if shim, err = buildShim(t.TempDir()); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), faultTimeout)
	defer cancel()
	nodes := make([]node, n)
	err = each(n, func(i int) error {
		p, err := startProcess(ctx, binary, dirs[i], shim, cfg)
		if err == nil {
			nodes[i] = p
		}
		return err
	})
	return nodes, err
}

// startProcess starts one server on a port that it finds free. What it returns with an error needs no closing.
func startProcess(ctx context.Context, binary, dir, shim string, cfg config) (*process, error) {
	p := &process{binary: binary, cfg: cfg, dir: dir}
	if shim != "" {
		var err error
		if p.clock, err = newProcessClock(shim, dir); err != nil {
			return nil, err
		}
	}
	if cfg.unix {
		// Not in the test's directory: a socket's path must be shorter than some 100 bytes.
		short, err := os.MkdirTemp("", "redlock")
		if err != nil {
			return nil, err
		}
		p.socketPath = filepath.Join(short, "redis.sock")
	}
	if err := untilPortFree(ctx, p.tryPort); err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	return p, nil
}

// tryPort starts the server on some free port.
func (p *process) tryPort(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	p.port = port
	if err := p.run(ctx, false); err != nil {
		releasePort(port)
		p.port = 0 // it is not for close to release
		return err
	}
	return nil
}

func (p *process) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

func (p *process) socket() string { return p.socketPath }

// up starts the server again. A connection of somebody else's may pass over its port: then it tries again.
func (p *process) up(ctx context.Context, keepData bool) error {
	return untilPortFree(ctx, func(ctx context.Context) error { return p.run(ctx, keepData) })
}

// run starts the server once, and returns when it is this process that answers, and not one that has its port.
func (p *process) run(ctx context.Context, keepData bool) error {
	// 1. Its data directory and log.
	data := filepath.Join(p.dir, "data")
	if !keepData {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	p.runs++
	log, err := os.Create(filepath.Join(p.dir, fmt.Sprintf("redis-%d.log", p.runs)))
	if err != nil {
		return err
	}
	defer log.Close()

	// 2. Start it.
	own := []string{"--port", strconv.Itoa(p.port), "--bind", "127.0.0.1", "--dir", data}
	if p.socketPath != "" {
		own = append(own, "--unixsocket", p.socketPath)
	}
	cmd := exec.Command(p.binary, p.cfg.serverArgs(own...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if p.clock != nil {
		cmd.Env = append(os.Environ(), p.clock.env()...)
	}
	if err := p.spawn(cmd); err != nil {
		return err
	}

	// 3. Wait until it answers.
	ask := probe{addr: p.addr(), password: p.cfg.password}
	err = await(ctx, p.exited, func(ctx context.Context) error {
		pid, err := ask.info(ctx, "process_id")
		if err == nil && pid != strconv.Itoa(p.pid) {
			err = errPortTaken
		}
		return err
	})
	if err == nil {
		return nil
	}
	err = errors.Join(err, p.kill(ctx))
	text, _ := os.ReadFile(log.Name())
	if bytes.Contains(text, []byte("Address already in use")) {
		return errPortTaken
	}
	return fmt.Errorf("%s did not start: %w; the end of its log:\n%s", p.binary, err, tail(text, 20))
}

// spawn starts cmd in a goroutine that ends when the process does. It keeps its thread for as long: the kernel takes
// the end of the thread that forked for the parent's death.
func (p *process) spawn(cmd *exec.Cmd) error {
	dieWithParent(cmd)
	exited := make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended does not matter: mostly we killed it
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.pid, p.exited = cmd.Process.Pid, exited
	return nil
}

// kill needs no thaw first: SIGKILL ends a stopped process too, before it can execute what it was sent.
func (p *process) kill(ctx context.Context) error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// freeze returns once the kernel has stopped the process; the signal alone takes a moment.
func (p *process) freeze(ctx context.Context) error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return await(ctx, p.exited, func(context.Context) error { return stopped(p.pid) })
}

func (p *process) thaw(context.Context) error { return p.signal(syscall.SIGCONT) }

// signal never reaches a process that took over the pid: until exited is closed, the pid is still ours.
func (p *process) signal(sig syscall.Signal) error {
	select {
	case <-p.exited:
		return os.ErrProcessDone
	default:
		return syscall.Kill(p.pid, sig)
	}
}

func (p *process) close(ctx context.Context) error {
	var errs []error
	if p.exited != nil {
		errs = append(errs, p.kill(ctx))
	}
	releasePort(p.port)
	if p.socketPath != "" {
		errs = append(errs, os.RemoveAll(filepath.Dir(p.socketPath)))
	}
	return errors.Join(errs...)
}

// tail returns the last n lines of a log.
func tail(text []byte, n int) string {
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
