// Package fenced shows the other half of a lock: a store that refuses the writes of an owner whose time is over. Copy
// what you need; nothing here depends on the lock but by its number, redlock.Lock.Fence.
//
// The order that each owner keeps to:
//
//	lock -> claim (raises the store's fence, and reads) -> decide -> write (refused below that fence) -> unlock
//
// Claiming first closes a gap that checked writes alone leave open. Until the new owner has written something the store
// knows the old owner's fence only, and lets it write: after the new owner has read, and before it writes what it made
// of that. With a claim the late write comes either before the read, which then sees it, or after it, and is refused.
//
// What no such check can do: take back what left the store (a payment, a mail), tie two stores together, or see through
// a caller who makes up a number. And it is no protection against doing a thing twice: an owner may write any number of
// times with its one fence, so a write that is repeated after a lost reply needs a key of its own, as entries have here.
package fenced

import (
	"errors"
	"fmt"
)

// ErrStale is a refusal: a later owner has been at the record. Nothing was written. Do not try again with this lock.
var ErrStale = errors.New("fenced: a later owner of the lock has been here")

// ErrUnclaimed is a write to a record that was not claimed before. Nothing was written.
var ErrUnclaimed = errors.New("fenced: claim the record first")

// maxFence is above every number that a lock gives. A larger one is a mistake, and would lock all owners out for good.
const maxFence = uint64(9e15)

func checkFence(fence uint64) error {
	if fence == 0 || fence > maxFence {
		return fmt.Errorf("fenced: %d is not the fence of a lock", fence)
	}
	return nil
}
