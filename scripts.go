package redlock

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
)

// op is what a request asks of a node. It indexes scripts.
type op uint8

const (
	opAcquire op = iota
	opRenew
	opRelease
	opCount
)

// String is the verb used in errors, events and logs.
func (o op) String() string {
	return [opCount]string{"acquire", "renew", "release"}[o]
}

// mayCreate says whether a request of this kind can bring a key into being.
func (o op) mayCreate() bool { return o != opRelease }

//go:embed scripts/acquire.lua
var acquireLua string

//go:embed scripts/renew.lua
var renewLua string

//go:embed scripts/release.lua
var releaseLua string

// script is a Lua source and the name that EVALSHA calls it by.
type script struct {
	source, sha string
}

var scripts = [opCount]script{newScript(acquireLua), newScript(renewLua), newScript(releaseLua)}

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}
