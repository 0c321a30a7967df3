//go:build !linux

package redlocktest

import (
	"fmt"
	"net"
)

// reserve picks a free port of 127.0.0.1. Here it cannot be kept: while a node
// is down, another program may be given its port, and Restart then fails.
func reserve() (addr string, release func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("redlocktest: reserving a port: %w", err)
	}
	addr = ln.Addr().String()
	if err := ln.Close(); err != nil {
		return "", nil, fmt.Errorf("redlocktest: reserving a port: %w", err)
	}
	return addr, func() {}, nil
}
