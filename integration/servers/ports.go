package servers

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports come from below the range that kernels give to outgoing connections (from 32768 on Linux, from 49152 elsewhere).
// A port from within it, as a listener on port 0 gets one, could be taken by any client's connection while its server
// is down, and the server could not come back at its address.
const (
	lowestPort = 20000
	portCount  = 12000
)

// errPortTaken tells whoever chose a free port that somebody else was quicker.
var errPortTaken = errors.New("the port is taken")

// portsInUse are those of this process's servers, also of dead ones, so that no two get the same.
var portsInUse sync.Map

// freePort reserves a port that nobody listens on. Another process may still take it before the server does: then the
// server does not start, and its provider asks for another port.
func freePort() (int, error) {
	for range 1000 {
		port := lowestPort + rand.IntN(portCount)
		if _, used := portsInUse.LoadOrStore(port, true); used {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			releasePort(port)
			continue
		}
		_ = l.Close()
		return port, nil
	}
	return 0, errors.New("there is no free port between 20000 and 32000")
}

// untilPortFree repeats start for as long as it finds the port taken.
func untilPortFree(ctx context.Context, start func(ctx context.Context) error) error {
	var err error
	return errors.Join(await(ctx, nil, func(ctx context.Context) error {
		if err = start(ctx); errors.Is(err, errPortTaken) {
			return err
		}
		return nil
	}), err)
}

func releasePort(port int) { portsInUse.Delete(port) }
