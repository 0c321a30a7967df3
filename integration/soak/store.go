package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/fenced"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// fencedStore is a counter for each resource, by the recipe of package fenced: claim the record and read it, add one,
// write it. Two steps, so that an update would be lost if the fences did not stop it.
type fencedStore struct{ c *redis.Client }

func (s fencedStore) Increment(ctx context.Context, resource string, fence uint64) (int64, error) {
	records := fenced.Records{Client: s.c}
	text, err := records.Claim(ctx, resource, fence)
	var value int64
	if err == nil && text != "" {
		value, err = strconv.ParseInt(text, 10, 64)
	}
	if err == nil {
		value++
		err = records.Write(ctx, resource, fence, strconv.FormatInt(value, 10))
	}
	if errors.Is(err, fenced.ErrStale) {
		err = fmt.Errorf("%w: %w", redlocktest.ErrStale, err)
	}
	return value, err
}

// plainStore is the same without fences: read, add one, write.
type plainStore struct{ c *redis.Client }

func (s plainStore) Increment(ctx context.Context, resource string, _ uint64) (int64, error) {
	value, err := s.c.HGet(ctx, resource, "value").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, err
	}
	value++
	return value, s.c.HSet(ctx, resource, "value", value).Err()
}

// named gives nodes the same name for all clients: each reaches them by proxies of its own.
func named(o redlock.Observer, urls []string) redlock.Observer {
	names := map[string]string{}
	for i, u := range urls {
		names[strings.TrimPrefix(u, "redis://")] = nodeName(i)
	}
	with := func(f func(redlock.Event)) func(redlock.Event) {
		return func(e redlock.Event) {
			if name, ok := names[e.Node]; ok {
				e.Node = name
			}
			f(e)
		}
	}
	o.NodeLost, o.NodeBack = with(o.NodeLost), with(o.NodeBack)
	o.NodeUnsteady, o.NodeSteady = with(o.NodeUnsteady), with(o.NodeSteady)
	o.ClockStepped = with(o.ClockStepped)
	return o
}

func nodeName(i int) string { return fmt.Sprint("n", i) }

func clientName(i int) string { return fmt.Sprint("c", i) }
