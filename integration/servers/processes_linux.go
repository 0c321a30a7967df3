package servers

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the process when the thread that forks it ends. A Ctrl-C at the terminal does not
// reach it: Redis would take it for an order to shut down, before whoever started it could end in order.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// stopped returns nil if every thread of the process stands still.
func stopped(pid int) error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, thread.Name()))
		if err != nil {
			return err
		}
		// pid (name) state ...; the name may have spaces and brackets.
		rest := stat[bytes.LastIndexByte(stat, ')')+1:]
		if state := bytes.Fields(rest)[0]; state[0] != 'T' {
			return fmt.Errorf("thread %s is in state %s", thread.Name(), state)
		}
	}
	return nil
}
