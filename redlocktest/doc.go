// Package redlocktest helps to test programs that use locks: it starts small Redis
// nodes inside a test and breaks them on demand, it records what each client did,
// and it checks afterwards that nobody was promised anything that did not hold.
//
// # Nodes
//
// [Start] gives a test n independent nodes; [New] gives them to a program.
// Each [Node] is an embedded Redis (miniredis) behind a [Proxy], and the proxy
// can also stand alone in front of a real Redis.
//
// A node keeps real time: keys expire by the clock to the microsecond, and TIME
// answers it, inside Lua scripts too. Nothing runs in the background for that;
// the clock is read before each command.
//
// A new node says that it has been up for a day, with a new run id at each
// restart and no uptime then: so locks that guard against restarted servers are
// to be had at once, and what happens after a [Node.Restart] can be tested.
//
// # Faults
//
// A server can hang ([Node.Freeze]), die ([Node.Stop]), come back empty
// ([Node.Restart]), with all its data ([Node.RestartWithData]) or with that of a
// while ago ([Node.RestartFrom]), lose its data alone ([Node.FlushAll]), answer
// errors ([Node.Fail]), and have a clock that is set ([Node.StepClock]) or runs at a
// wrong rate ([Node.ClockRate]). A network can be slow ([Node.Delay], [Node.Jitter],
// [Node.Trickle]), silent in both directions or in one ([Node.BlackHole],
// [Node.BlackHoleRequests], [Node.BlackHoleReplies]), break connections ([Node.Cut]),
// refuse them ([Node.RefuseNew]), forget them ([Node.HalfOpen]), lose replies
// ([Node.DropReplies], [Node.SwallowReplies]) and double requests
// ([Node.ReplayRequests]).
//
// # Recording
//
// A [History] takes down what happens. Give each client, that is each pool, a
// [Recorder] of its own, take locks through that, and write to what the locks
// protect through [Holding.Write]:
//
//	h := redlocktest.NewHistory()
//	r := h.Client("worker-1")
//	pool, err := redlock.New(clients, redlock.WithObserver(r.Observer()))
//	...
//	lock, err := r.Lock(ctx, pool, "account:42")
//	...
//	err = lock.Write(ctx, store)
//	err = lock.Unlock(ctx)
//
// Losses and renewals are recorded by themselves. What the test breaks it has to
// record itself, as [Fault] and [Healed], and the death of a process as [Ended].
// Clients in several processes each open the same file with [OpenHistory]; the
// times are those of a clock that they share. A process that is killed loses
// nothing it recorded. In a test with real time let each process run
// [Recorder.MeasureDelay]: without it, a loss that is told late because the
// machine was busy looks like a fault of the lock.
//
// # Checks
//
// [History.Check] runs them all. One that fails returns a [Violation], whose text
// is the shortest piece of the history that shows what is wrong.
//
//	check           it proves, for this run                 it does not prove
//	CheckExclusive  no two clients believed in a lock of    that a paused client does not
//	                one resource at the same moment         act after its check: see the store
//	CheckFences     each owner's fence is above those of    anything about a store that does
//	                all owners before                       not compare them
//	CheckStore      no write was lost, none came after a    anything but the counter: a store
//	                later owner's                           can guard one record and forget another
//	CheckHonest     each loss was told by its deadline,     that a client listens
//	                and none without a fault
//	CheckClean      nothing is left on the nodes            what nobody looked for: LookForLeft
//	                                                        has to be called first
//
// A history proves what happened in it and nothing else: a rare fault has to be
// made to happen. A hold counts from when Lock returned to its end as the client
// knew it, so what the servers thought is not compared, and does not matter.
//
// # Virtual time
//
// Histories, recorders and checks work inside testing/synctest, with a clock
// from [WithClock]. Nodes do not: they have sockets.
//
// # Limits
//
// A node costs four goroutines per connection and one for its listener; none is
// left after Close. It takes at most 1024 connections, and holds per connection
// at most 1 MiB of requests that were not yet executed (then it stops reading,
// as a full socket does) and 4 MiB of replies that were not yet read (then it
// cuts the connection, as Redis does by client-output-buffer-limit).
//
// Each command takes time in proportion to the keys on its node, some 0.3 ms
// per thousand: a few thousand are fine, a hundred thousand are not. A script
// call takes half a millisecond more.
//
// A history in memory takes some 200 bytes per record and is checked in six to
// eight seconds per million. A hold that is recorded costs one goroutine while it
// lasts.
//
// An embedded node is not Redis. Where it differs in a way that matters to a
// lock, all in Lua: a number that becomes a string (tostring, ..) keeps all its
// digits, where Redis keeps 14 and writes 1.7e+15; tonumber refuses spaces;
// error() with a table loses its text; the libraries bit, struct and cmsgpack
// are missing; errors of scripts inside MULTI have another wording. INFO cannot
// be queued by MULTI, and CONFIG, ROLE and DEBUG do not exist. What a lock must
// survive should be tried on real servers too.
package redlocktest
