package redlock

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strconv"
)

// Names of our own, behind the prefix.
const (
	reservedNames = "redlock:"
	stateKey      = reservedNames + "node"   // the hash of each node's marker and fence counters
	freeChannel   = reservedNames + "free:"  // and a key: the channel of its releases
	queueKey      = reservedNames + "queue:" // and a resource: the hash of those who wait for it in order
)

// op is what a request asks of a node. It indexes scripts.
type op uint8

const (
	opAcquire op = iota
	opRenew
	opRelease
	opPeek
	opJoin
	opLeave
	opCount
)

// String is the verb used in errors, events and logs.
func (o op) String() string {
	return [opCount]string{"acquire", "renew", "release", "peek", "join", "leave"}[o]
}

// mayCreate says whether a request of this kind can bring a key of a lock into being.
func (o op) mayCreate() bool { return o <= opRenew }

// dated says whether a request of this kind is refused by a server that gets it too late.
func (o op) dated() bool { return o.mayCreate() || o == opJoin }

// ofLocks says whether a request of this kind is about a token's keys, as opposed to those who wait for them.
func (o op) ofLocks() bool { return o <= opRelease }

//go:embed scripts/acquire.lua
var acquireLua string

//go:embed scripts/renew.lua
var renewLua string

//go:embed scripts/release.lua
var releaseLua string

//go:embed scripts/peek.lua
var peekLua string

//go:embed scripts/join.lua
var joinLua string

//go:embed scripts/leave.lua
var leaveLua string

//go:embed scripts/batch.lua
var batchLua string

//go:embed scripts/mark.lua
var markLua string

//go:embed scripts/witness.lua
var witnessLua string

// script is a Lua source and the name that EVALSHA calls it by.
type script struct {
	source, sha string
}

var scripts = [opCount]script{newScript(acquireLua), newScript(renewLua), newScript(releaseLua), newScript(peekLua), newScript(joinLua), newScript(leaveLua)}

// batchScript does what the others do for many requests at once. It is called by serve alone.
var batchScript = newScript(batchLua)

// markScript is called by tend alone.
var markScript = newScript(markLua)

// witnessOf is loaded with a keyspace's marker alone, for that is what it witnesses; another keyspace on the same server
// has another.
func witnessOf(state string, db int) script {
	sum := sha1.Sum([]byte(state))
	return newScript(witnessLua + "-- " + hex.EncodeToString(sum[:]) + " " + strconv.Itoa(db) + "\n")
}

// loaded are those that a connection is not used without.
var loaded = append(scripts[:opCount:opCount], batchScript, markScript)

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}
