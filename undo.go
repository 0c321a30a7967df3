package redlock

import (
	"container/heap"
	"time"
)

// maxUndo bounds the undo list of a node: some 20 MB with names of usual length, after minutes of failed rounds.
const maxUndo = 65536

// undo is a token that may still own keys on a node although nobody wants it.
//
// A request whose reply never came may be applied later: its bytes wait in the socket buffer of a frozen server even
// after the connection was closed. It carries the last second of the server's clock at which it may be applied, so the
// token is gone for certain once a release was confirmed after that second, or one TTL beyond it.
type undo struct {
	keys   []string
	token  string
	latest int64         // the server's clock must have left this second when the release runs; 0: any time will do
	due    time.Duration // when to ask next, monotonic since the epoch
	expiry time.Duration // when the key is gone by itself, monotonic since the epoch
}

// undoList holds what a node still has to undo, soonest first. It is guarded by its node's mutex.
type undoList struct {
	entries undoHeap
	tokens  map[string]*undo

	// uncertain are the tokens of requests that went out and were never answered, whose handle may be alive: their
	// release needs the same care. In the order in which they came, which is nearly that of their seconds.
	uncertain map[string]int64
	order     []string
}

// doubt notes that a request for token may be applied until the given second of the server's clock.
func (l *undoList) doubt(token string, latest int64) {
	if l.uncertain == nil {
		l.uncertain = make(map[string]int64)
	}
	if _, ok := l.uncertain[token]; !ok {
		if len(l.order) >= maxUndo {
			l.forget()
		}
		l.order = append(l.order, token)
	}
	l.uncertain[token] = max(l.uncertain[token], latest)
}

// settle forgets doubts about seconds that the server's clock has left.
func (l *undoList) settle(second int64) {
	for len(l.order) > 0 && l.uncertain[l.order[0]] < second {
		l.forget()
	}
}

func (l *undoList) forget() {
	delete(l.uncertain, l.order[0])
	l.order = l.order[1:]
	if len(l.order) == 0 {
		l.order = nil // lets go of what the slice has grown to
	}
}

// add takes an entry, or merges it with the one of the same token. It returns how many old entries had to go.
func (l *undoList) add(u *undo) (dropped int) {
	u.latest = max(u.latest, l.uncertain[u.token])
	if old, ok := l.tokens[u.token]; ok {
		old.latest = max(old.latest, u.latest)
		old.expiry = max(old.expiry, u.expiry)
		return 0
	}
	if l.tokens == nil {
		l.tokens = make(map[string]*undo)
	}
	if len(l.entries) >= maxUndo {
		l.done(heap.Pop(&l.entries).(*undo))
		dropped = 1
	}
	l.tokens[u.token] = u
	heap.Push(&l.entries, u)
	return dropped
}

// take removes up to limit entries that are due, for one try. Those whose key is gone by itself are dropped.
func (l *undoList) take(now time.Duration, limit int) []*undo {
	var due []*undo
	for len(l.entries) > 0 && l.entries[0].due <= now {
		gone := l.entries[0].expiry <= now
		if !gone && len(due) >= limit {
			break
		}
		u := heap.Pop(&l.entries).(*undo)
		if gone {
			l.done(u)
		} else {
			due = append(due, u)
		}
	}
	return due
}

// again puts back an entry whose try did not settle it.
func (l *undoList) again(u *undo, due time.Duration) {
	u.due = due
	heap.Push(&l.entries, u)
}

func (l *undoList) done(u *undo) { delete(l.tokens, u.token) }

// len counts the tokens that may still own keys, including those of a try under way.
func (l *undoList) len() int { return len(l.tokens) }

// next says when the first entry is due.
func (l *undoList) next() (time.Duration, bool) {
	if len(l.entries) == 0 {
		return 0, false
	}
	return l.entries[0].due, true
}

type undoHeap []*undo

func (h undoHeap) Len() int           { return len(h) }
func (h undoHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h undoHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *undoHeap) Push(x any)        { *h = append(*h, x.(*undo)) }
func (h *undoHeap) Pop() any {
	old := *h
	u := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return u
}
