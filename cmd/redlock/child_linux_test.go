package main

import (
	"testing"

	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// In a container the first process may never collect the dead that it inherits; here it is this test.
func TestTheGroupEndsThoughNobodyCollectsItsDead(t *testing.T) {
	require.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	defer func() { require.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)) }()
	ns := redlocktest.Start(t, 3)
	ws := newWitnesses(t)
	r := launch(t, ns, underLock("k --grace 100ms", "witness", "leader", "stubborn", "member"), witnessed(ws))
	leader, _ := ws.pair("leader")
	leader.exit(4)
	require.Equal(t, 4, r.code(), r.stderr.String())
}
