package redlocktest

import "time"

// Kind says what a [Record] tells.
type Kind string

// What a history can tell.
const (
	Acquired  Kind = "acquired"  // Lock returned
	Failed    Kind = "failed"    // it did not: Text
	Extended  Kind = "extended"  // Deadline moved: a renewal, or Extend
	Checked   Kind = "checked"   // Valid was true at At
	Releasing Kind = "releasing" // Unlock was called: from here on the hold counts for nothing
	Released  Kind = "released"  // Unlock returned; Text: its error
	Lost      Kind = "lost"      // the holder was told; Text: the cause; Deadline: the last one
	Wrote     Kind = "wrote"     // the fenced store took a write under Hold with Fence
	Refused   Kind = "refused"   // the fenced store refused it
	Unknown   Kind = "unknown"   // nobody knows whether the store took it; Text: the error
	Fault     Kind = "fault"     // the test broke something: Node or Client (neither: everything); Text names the kind of fault
	Healed    Kind = "healed"    // ... and mended it: the same Node, Client and Text
	NodeSays  Kind = "node"      // what the library said of a Node: Text lost, back, unsteady, steady or clock
	Frozen    Kind = "frozen"    // the process of Client found that it stood still from Began to At
	Delayed   Kind = "delayed"   // how Late the timers of Client's process were at worst, from Began to At
	Ended     Kind = "ended"     // Client's process ended, killed or done; its holds are over
	Left      Kind = "left"      // a key of Hold was found on Node when nothing may be left
)

// Why a holder lost its lock although nothing was wrong: the Text of a [Lost]
// record is one of these, or the error of the lock.
const (
	LeaseOver   = "its lease is over"
	MaxHoldOver = "its longest hold is over"
)

// Record is one line of a history. Times are durations on one clock, that of
// [History.Now]; in JSON they are nanoseconds. Fields that do not apply are zero.
type Record struct {
	At        time.Duration `json:"at"`
	Kind      Kind          `json:"kind"`
	Client    string        `json:"client,omitempty"` // who: one pool, one process
	Hold      string        `json:"hold,omitempty"`   // the token of the ownership
	Resources []string      `json:"resources,omitempty"`
	Fence     uint64        `json:"fence,omitempty"`
	Began     time.Duration `json:"began,omitempty"`    // when the call began; At is when it returned
	Deadline  time.Duration `json:"deadline,omitempty"` // how long the lock may be believed in, as known at At
	Late      time.Duration `json:"late,omitempty"`     // Delayed: how late timers were
	Node      string        `json:"node,omitempty"`
	Text      string        `json:"text,omitempty"`  // the error, the fault's name, the cause
	Value     int64         `json:"value,omitempty"` // Wrote: what the store holds now
}
