// Package redlock locks resources across N independent Redis nodes by majority: the Redlock algorithm, with what it
// needs to be used where money moves.
//
//	pool, err := redlock.Open([]string{"redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379"})
//	...
//	err = pool.Do(ctx, "account:42", func(ctx context.Context) error {
//		return transfer(ctx) // its ctx ends if the lock is lost
//	})
//
// A lock is a lease: it is kept by a watchdog while a majority of nodes confirms it, and it ends at its deadline
// whether or not anybody answers. Lock.Lost, Lock.Context and Lock.Valid tell of that end, never later than another
// client could own the resource, unless this process is frozen at that moment. No lock service can stop a paused
// process from writing late; a store that checks Lock.Fence can. A node that restarted, lost its data or stepped its
// clock has no vote for a while, see WithRestartGuard; so freshly started servers need that time, too. docs/safety.md
// says what this package promises and what it does not.
//
// # Files
//
// A file uses only those below it:
//
//	redlock     Pool: New, Open, Lock ... Do; close
//	lock        the handle of one acquisition
//	wait        how a waiting call waits; line: who waits in this process; hear, look: what the nodes tell, and are asked
//	watchdog    renews all held locks of a pool and ends them at their deadline
//	options     options, defaults, validation; url
//	quorum      acquire, renew, give back; round: ask all, tally, decide; places: in the nodes' queues
//	hold        one acquisition: what each node said, and until when that proves ownership; ticket: a place in a queue
//	node        one Redis server: its queue; serve (pipelines), reach (dial, probe, idle clock), undo, command, conn,
//	            wire, scripts; listen: its releases; its memory and clock: marker, steady, tend, heal, stepped
//	clockdrift  validity, deadlines, clocks; fence: counters and proposals
//	observe     events, stats
//	errors      sentinels and reasons
package redlock
