package redlocktest

import (
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// reserve picks a free port of 127.0.0.1 and keeps it for us: its socket is
// bound and never listens, so connections are refused unless somebody listens
// there on purpose, and no other program is given the port while a node is down.
func reserve() (addr string, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("redlocktest: reserving a port: %w", err)
	}
	release = func() { _ = syscall.Close(fd) }
	port, err := bind(fd)
	if err != nil {
		release()
		return "", nil, fmt.Errorf("redlocktest: reserving a port: %w", err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), release, nil
}

func bind(fd int) (port int, err error) {
	// With SO_REUSEADDR, which Go's listeners set too, a listener may join a bound socket that does not listen.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	in4, ok := sa.(*syscall.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("unexpected address %T", sa)
	}
	return in4.Port, nil
}
