package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed71a1c8e3/redlock/integration/nemesis"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// What is left on the nodes while the run goes on: after an Unlock or an acquire that failed, no key stays on a node that
// can be reached for longer than a node timeout and three seconds. To see more than keys that run out by themselves, the
// TTL must be longer than that: -ttl 10s.

const (
	keysFile   = "keys.log"
	keysEvery  = 500 * time.Millisecond
	undoAfter  = 3 * time.Second         // plus a node timeout
	keysSlack  = 1500 * time.Millisecond // what this machine may take to look, and a client to run
	lookingFor = 300 * time.Millisecond  // how long a look at a node may take; it may be frozen
)

// seenKey is a key that was on a node at some moment.
type seenKey struct {
	At    time.Duration `json:"at"`
	Node  string        `json:"node"`
	Key   string        `json:"key"`
	Token string        `json:"token"`
}

// watchKeys writes down what is on the nodes until ctx ends.
func (r *run) watchKeys(ctx context.Context) error {
	file, err := os.Create(filepath.Join(r.o.out, keysFile))
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	lines := json.NewEncoder(out)
	for tick := time.NewTicker(keysEvery); ctx.Err() == nil; {
		var looking sync.WaitGroup
		found := make([][]seenKey, len(r.w.nodes))
		for i := range r.w.nodes {
			looking.Go(func() { found[i] = r.keysOn(i) })
		}
		looking.Wait()
		for _, k := range slices.Concat(found...) {
			if err := lines.Encode(k); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
		}
	}
	return errors.Join(out.Flush(), file.Close())
}

func (r *run) keysOn(i int) (found []seenKey) {
	ctx, cancel := context.WithTimeout(context.Background(), lookingFor)
	defer cancel()
	c := r.w.looks[i]
	keys, err := c.Keys(ctx, "*").Result()
	if err != nil || len(keys) == 0 {
		return nil
	}
	for _, k := range keys {
		if strings.HasSuffix(k, stateKey) {
			continue
		}
		at := r.history.Now() // before: it was there then, if it is there after
		token, err := c.Get(ctx, k).Result()
		if err == nil {
			found = append(found, seenKey{at, nodeName(i), k, token})
		}
	}
	return found
}

// checkTidy returns the keys that stayed for too long.
func (r *run) checkTidy(records []redlocktest.Record) error {
	file, err := os.Open(filepath.Join(r.o.out, keysFile))
	if errors.Is(err, os.ErrNotExist) {
		return notLookedAt("keys run out before they could count as left: it takes a longer -ttl")
	}
	if err != nil {
		return err
	}
	defer file.Close()
	seen := 0
	over, killed := givenBack(records)
	troubles := r.hindrances(records)
	first := map[[2]string]time.Duration{} // node and token: when it was seen first
	told := map[[2]string]bool{}
	var errs []error
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var k seenKey
		if err := json.Unmarshal(lines.Bytes(), &k); err != nil {
			return err
		}
		seen++
		id := [2]string{k.Node, k.Token}
		if _, ok := first[id]; !ok {
			first[id] = k.At
		}
		since, held := over[k.Token]
		if held && since == 0 {
			continue // still held, or told lost and not given back
		}
		if !held {
			since = first[id] // of an acquire that failed, or is under way
		}
		limit := r.o.nodeTimeout + undoAfter + keysSlack
		if told[id] || k.At < since+limit || killed.within(owner(k.Token), k.At-r.o.ttl-longestStep, k.At) ||
			troubles.within(k.Node, owner(k.Token), k.At-limit, k.At) {
			continue
		}
		told[id] = true
		errs = append(errs, fmt.Errorf("%s of %s (%s) was still on %s at %v, %v after it was given back or first seen",
			k.Key, owner(k.Token), k.Token, k.Node, k.At, k.At-since))
	}
	if err := errors.Join(append(errs, lines.Err())...); err != nil || seen > 0 {
		return err
	}
	return notLookedAt("no key was ever seen on a node")
}

// owner is the client that a token belongs to, by its label.
func owner(token string) string { return token[strings.LastIndexByte(token, ' ')+1:] }

// givenBack says when each hold was given back, 0 if it was not, and which clients were killed when.
func givenBack(records []redlocktest.Record) (over map[string]time.Duration, killed kills) {
	over, killed = map[string]time.Duration{}, kills{}
	for _, rec := range records {
		switch rec.Kind {
		case redlocktest.Acquired:
			over[rec.Hold] = 0
		case redlocktest.Released: // Unlock has done what it can; the rest is up to the undo list
			over[rec.Hold] = rec.At
		case redlocktest.Ended:
			if rec.Text == "killed" || rec.Text == "crashed" {
				killed[rec.Client] = append(killed[rec.Client], rec.At)
			}
		}
	}
	return over, killed
}

// kills are the times at which clients were killed: their keys run out by the TTL.
type kills map[string][]time.Duration

func (k kills) within(client string, from, to time.Duration) bool {
	return slices.ContainsFunc(k[client], func(at time.Duration) bool { return at >= from && at <= to })
}

// longestStep is the most that a server's clock is set back by: its keys live longer by that.
const longestStep = 5 * time.Second

// hindrances are faults that keep a client from undoing, or that bring keys back.
type hindrances []trouble

func (r *run) hindrances(records []redlocktest.Record) hindrances {
	all := r.troubles(records)
	for i := range all {
		if nemesis.Revives(all[i].text) {
			all[i].healed += r.o.ttl + longestStep
		}
	}
	return all
}

func (h hindrances) within(node, client string, from, to time.Duration) bool {
	return slices.ContainsFunc(h, func(t trouble) bool {
		return t.from <= to && t.healed >= from && (t.node == "" || t.node == node) && (t.client == "" || t.client == client)
	})
}
