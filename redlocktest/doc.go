// Package redlocktest starts small Redis nodes inside a test and breaks them on
// demand: it freezes them, cuts their connections, swallows their replies,
// restarts them empty, steps their clocks and makes them answer errors.
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
// An embedded node is not Redis. Where it differs in a way that matters to a
// lock, all in Lua: a number that becomes a string (tostring, ..) keeps all its
// digits, where Redis keeps 14 and writes 1.7e+15; tonumber refuses spaces;
// error() with a table loses its text; the libraries bit, struct and cmsgpack
// are missing; errors of scripts inside MULTI have another wording. INFO cannot
// be queued by MULTI, and CONFIG, ROLE and DEBUG do not exist. What a lock must
// survive should be tried on real servers too.
package redlocktest
