package redlocktest

import (
	"sync"
	"time"
)

// chunkOverhead is what a waiting chunk costs beside its bytes, roughly, so
// that many tiny chunks meet the limit of a queue too.
const chunkOverhead = 64

// chunk is what arrived in one read or write, and when.
type chunk struct {
	data []byte
	at   time.Time
	luck float64 // which part of the longest jitter it takes
}

// queue holds the bytes of one direction of a connection, in order. It has one
// reader; ready and space wake whoever waits, and may wake in vain.
type queue struct {
	limit int           // set by newQueue, then read-only
	ready chan struct{} // holds one token when something was added, or no more will be
	space chan struct{} // holds one token when something was taken

	mu     sync.Mutex // guards the fields below
	chunks []chunk
	size   int  // bytes that wait
	done   bool // nothing is added any more
	mute   bool // what is added vanishes
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, ready: make(chan struct{}, 1), space: make(chan struct{}, 1)}
}

// push adds c, whose data the queue keeps. It reports false, and adds nothing,
// if the queue is full. What is pushed after the end vanishes.
func (q *queue) push(c chunk) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.done || q.mute {
		return true
	}
	if q.size+len(q.chunks)*chunkOverhead >= q.limit {
		return false
	}
	q.chunks = append(q.chunks, c)
	q.size += len(c.data)
	wake(q.ready)
	return true
}

// head returns the oldest chunk without taking it. ok is false if there is
// none, and done is true if there will be none.
func (q *queue) head() (c chunk, ok, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.chunks) == 0 {
		return chunk{}, false, q.done
	}
	return q.chunks[0], true, false
}

// advance takes n bytes off the oldest chunk, if that is still there.
func (q *queue) advance(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.chunks) == 0 {
		return // aborted meanwhile
	}
	q.size -= n
	if rest := q.chunks[0].data[n:]; len(rest) > 0 {
		q.chunks[0].data = rest
		return
	}
	q.chunks[0] = chunk{}
	q.chunks = q.chunks[1:]
	wake(q.space)
}

// finish ends the queue behind what it holds.
func (q *queue) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.done = true
	wake(q.ready)
}

// abort ends the queue and drops what it holds.
func (q *queue) abort() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.done, q.chunks, q.size = true, nil, 0
	wake(q.ready)
	wake(q.space)
}

// silence makes everything that is added from now on vanish.
func (q *queue) silence() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mute = true
}

// live reports whether what is added is also kept.
func (q *queue) live() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.done && !q.mute
}

// waiting returns the number of bytes in the queue.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

// wake leaves a token for one waiter, if there is none yet.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
