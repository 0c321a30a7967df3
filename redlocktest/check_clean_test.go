package redlocktest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKeysThatAreLeftAreFound(t *testing.T) {
	ctx := testContext(t)
	nodes := Start(t, 3)
	pool := openPool(t, nodes)
	h := NewHistory()
	r := h.Client("a")
	hd, err := r.Lock(ctx, pool, "given back")
	require.NoError(t, err)
	require.NoError(t, hd.Unlock(ctx))
	clients := nodes.Clients()
	n, err := h.LookForLeft(ctx, "lock:", clients...)
	require.NoError(t, err)
	require.Zero(t, n, "the library's own record is no lock")
	require.NoError(t, h.Check())

	hd, err = r.Lock(ctx, pool, "held")
	require.NoError(t, err)
	eventually(t, func() bool { _, ok := nodes.Node(2).Get("lock:held"); return ok }, "on all three")
	nodes.Node(0).Set("other:key", "v", 0)
	require.NoError(t, nodes.Node(1).Client().HSet(ctx, "lock:hash", "f", "v").Err())
	n, err = h.LookForLeft(ctx, "lock:", clients...)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	left := only(h.Records(), Left)
	for i, node := range []int{0, 1, 1, 2} {
		require.Equal(t, nodes.Node(node).Addr(), left[i].Node)
		if left[i].Resources[0] == "hash" {
			require.Contains(t, left[i].Text, "WRONGTYPE")
			continue
		}
		require.Equal(t, []string{"held"}, left[i].Resources)
		require.Equal(t, hd.Token(), left[i].Hold)
	}
	require.ErrorContains(t, h.CheckClean(), "is left on "+nodes.Node(0).Addr())
}

func TestAPrefixIsNoPattern(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	n.Set("a*[b]?:key", "v", time.Hour)
	n.Set("axx[b]x:key", "v", time.Hour)
	h := NewHistory()
	count, err := h.LookForLeft(ctx, "a*[b]?:", n.Client())
	require.NoError(t, err)
	require.Equal(t, 1, count)
}

func TestAServerThatCannotBeAskedIsAnError(t *testing.T) {
	ctx := testContext(t)
	nodes := Start(t, 2)
	nodes.Node(0).Set("lock:x", "token", 0)
	nodes.Node(1).Stop()
	h := NewHistory()
	count, err := h.LookForLeft(ctx, "lock:", nodes.Clients()...)
	require.ErrorContains(t, err, nodes.Node(1).Addr())
	require.Equal(t, 1, count, "the others are asked all the same")
}
