package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/spf13/cobra"
)

// The paused holder is a process of its own: this program with a hidden command, which does one thing for each line of
// JSON that it reads and answers with one. It ends with its input. Passwords go that way, too.

const holderCommand = "drill-holder"

// order is what the drill tells the holder: first where to lock, then what to do.
type order struct {
	URLs     []string
	TTL      time.Duration
	Timeout  time.Duration // of a node
	Prefix   string
	Resource string
	History  string
	Do       string // "check", "write" or "unlock"
}

// answer is what the holder says.
type answer struct {
	Error string
	Held  bool
	Valid bool
	Token string
	Fence uint64

	Write bool // a question: may it write to the store, under Fence?
}

func newHolder(stdin io.Reader, stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:    holderCommand,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			h := &holder{in: json.NewDecoder(stdin), out: json.NewEncoder(stdout)}
			if err := h.live(); err != nil && !errors.Is(err, io.EOF) {
				return h.out.Encode(answer{Error: reasonText(err)})
			}
			return nil
		},
	}
}

// holder is that process.
type holder struct {
	in  *json.Decoder
	out *json.Encoder
}

const pausedName = "paused client"

func (h *holder) live() (err error) {
	// 1. The lock.
	var o order
	if err := h.in.Decode(&o); err != nil {
		return err
	}
	history, err := redlocktest.OpenHistory(o.History)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, history.Close()) }()
	record := history.Client(pausedName)
	ctx, stop := context.WithCancel(context.Background())
	measured := make(chan struct{})
	go func() {
		defer close(measured)
		record.MeasureDelay(ctx)
	}()
	defer func() { stop(); <-measured }()
	pool, err := redlock.Open(o.URLs, redlock.WithTTL(o.TTL), redlock.WithNodeTimeout(o.Timeout), redlock.WithKeyPrefix(o.Prefix), redlock.WithLabel(label(pausedName)),
		redlock.WithObserver(record.Observer()))
	if err != nil {
		return err
	}
	defer func() { _ = record.Close(pool) }()
	within, cancel := context.WithTimeout(ctx, 2*o.TTL+2*time.Second)
	defer cancel()
	hold, err := record.Lock(within, pool, o.Resource)
	if err != nil {
		return err
	}
	if err := h.out.Encode(answer{Held: true, Valid: true, Token: hold.Token(), Fence: hold.Fence()}); err != nil {
		return err
	}

	// 2. What it is told. Nothing stands between the order and Valid.
	for {
		var o order
		if err := h.in.Decode(&o); err != nil {
			return err
		}
		a := answer{Held: true, Token: hold.Token(), Fence: hold.Fence()}
		switch o.Do {
		case "check":
			a.Valid = hold.Check()
		case "write":
			if err := hold.Write(ctx, h); err != nil {
				a.Error = reasonText(err)
			}
		}
		if err := h.out.Encode(a); err != nil {
			return err
		}
	}
}

// Increment asks the drill, which has the store.
func (h *holder) Increment(_ context.Context, _ string, fence uint64) (int64, error) {
	if err := h.out.Encode(answer{Write: true, Fence: fence}); err != nil {
		return 0, err
	}
	var verdict struct {
		Value int64
		Stale bool
	}
	if err := h.in.Decode(&verdict); err != nil {
		return 0, err
	}
	if verdict.Stale {
		return 0, redlocktest.ErrStale
	}
	return verdict.Value, nil
}

// puppet is the holder as the drill sees it.
type puppet struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr bytes.Buffer
}

// raise starts the holder. end ends it.
func (s *stage) raise() (*puppet, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &puppet{cmd: exec.Command(self, holderCommand)}
	p.cmd.Stderr = &p.stderr
	watched(p.cmd)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(bufio.NewReader(out))
	return p, p.cmd.Start()
}

func (p *puppet) tell(o order) error { return json.NewEncoder(p.in).Encode(o) }

// hear waits for an answer; a process that does not answer is killed by whoever ends the drill.
func (p *puppet) hear() (answer, error) {
	var a answer
	if err := p.out.Decode(&a); err != nil {
		return a, fmt.Errorf("the holder's process: %w %s", err, p.stderr.String())
	}
	return a, nil
}

func (p *puppet) end() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill() // a stopped one would not see that its input has ended
	_ = p.cmd.Wait()
}

// urls are the nodes', with their passwords.
func (s *stage) urls() []string {
	if o, real := s.fleet.(*own); real {
		return o.urls
	}
	var all []string
	for i := range s.fleet.count() {
		all = append(all, "redis://"+s.fleet.addr(i))
	}
	return all
}

// pausedHolder stops the holder's process for longer than its lock lives.
func pausedHolder(s *stage) error {
	b, err := s.enter("client B", false)
	if err != nil {
		return err
	}
	if err := s.ready(b); err != nil {
		return err
	}
	p, err := s.raise()
	if err != nil {
		return err
	}
	defer p.end()
	defer context.AfterFunc(s.ctx, func() { _ = p.cmd.Process.Kill() })()
	paused := &client{name: pausedName}

	// 1. It holds the lock, and nobody else gets it.
	s.step("a process locks", "%s", s.resource)
	if err := p.tell(order{URLs: s.urls(), TTL: s.ttl, Timeout: s.nodeTimeout, Prefix: s.prefix(), Resource: s.resource, History: s.path}); err != nil {
		return err
	}
	held, err := p.hear()
	if err != nil {
		return err
	}
	if !held.Held {
		return fmt.Errorf("the holder's process did not get the lock: %s", held.Error)
	}
	s.line.said(time.Now(), green, "acquired", "fence %d", held.Fence)
	r := s.press(b)
	defer r.end()
	s.rest(s.ttl / 2)
	s.shut(r, nil)

	// 2. It stands still. What it will do first is waiting for it.
	s.step("stop the process", "(SIGSTOP)")
	s.fault("paused", -1, paused)
	if err := pause(p.cmd.Process.Pid); err != nil {
		return err
	}
	stopped := time.Now()
	store := redlocktest.NewStore()
	if err := p.tell(order{Do: "check"}); err != nil {
		return err
	}
	hold, err := s.acquire(b)
	s.promise("next", "the next client gets the lock once it has run out", err == nil)
	if err != nil {
		return err
	}
	wrote := hold.Write(s.ctx, store) == nil
	s.line.said(time.Now(), plain, "wrote", "to the store, under fence %d", hold.Fence())
	s.rest(s.ttl*3/2 - time.Since(stopped))

	// 3. It goes on.
	s.step("let it go on", "after %.1f s (SIGCONT); the first thing that it does is to ask Valid()", time.Since(stopped).Seconds())
	if err := resume(p.cmd.Process.Pid); err != nil {
		return err
	}
	s.healed("paused", -1, paused)
	first, err := p.hear()
	if err != nil {
		return err
	}
	s.line.said(time.Now(), plain, "Valid()", "says %v", first.Valid)
	s.promise("told", "the first thing that a paused holder can ask tells it that its lock is gone", !first.Valid)

	// 4. It writes all the same.
	refused, err := s.lateWrite(p, store)
	if err != nil {
		return err
	}
	s.line.said(time.Now(), plain, "late write", "under fence %d: refused: %v", held.Fence, refused)
	s.promise("fenced", "a store that checks the fence refuses the late write", wrote && refused && hold.Fence() > held.Fence && store.Value(s.resource) == 1)
	_, told := s.lossOf(held.Token)
	s.promise("lost", "the holder is told of the loss, too", told)
	s.promise("undisturbed", "the next client still has the lock", hold.Check())
	s.release(b, hold)
	return nil
}

// lateWrite lets the holder write to the store, and says whether the store refused.
func (s *stage) lateWrite(p *puppet, store *redlocktest.MemoryStore) (refused bool, err error) {
	if err := p.tell(order{Do: "write"}); err != nil {
		return false, err
	}
	asked, err := p.hear()
	if err != nil {
		return false, err
	}
	if !asked.Write {
		return false, fmt.Errorf("the holder's process did not write: %s", asked.Error)
	}
	value, err := store.Increment(s.ctx, s.resource, asked.Fence)
	refused = errors.Is(err, redlocktest.ErrStale)
	if err := json.NewEncoder(p.in).Encode(map[string]any{"Value": value, "Stale": refused}); err != nil {
		return false, err
	}
	_, err = p.hear()
	return refused, err
}
