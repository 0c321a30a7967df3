package redlock

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The marker is: settings, run id, and "steady", "nonce=..." or "new=...".
const (
	markerFormat = "redlock/1"
	runField     = " run="
	steadyWord   = "steady"
	nonceWord    = "nonce="
	newWord      = "new="
	noMarker     = "none" // what a node is asked for that must not vote; equal to no marker
)

// settingsOf is the part of the marker that all clients of a keyspace must agree on.
func settingsOf(n, k int, guard time.Duration) string {
	return fmt.Sprintf("%s n=%d k=%d guard=%d stripes=%d", markerFormat, n, k, guard.Milliseconds(), stripes)
}

// marker is what a node's marker says.
type marker struct {
	settings, run, state string
}

func parseMarker(text string) marker {
	settings, rest, _ := strings.Cut(text, runField)
	run, state, _ := strings.Cut(rest, " ")
	return marker{settings, run, state}
}

func (m marker) String() string { return m.settings + runField + m.run + " " + m.state }

// isNew says whether the node's process had no marker before this one.
func (m marker) isNew() bool { return strings.HasPrefix(m.state, newWord) }

func newNonce() string {
	var bits [16]byte
	_, _ = rand.Read(bits[:])
	return hex.EncodeToString(bits[:])
}

// serverInfo is what INFO says of a server.
type serverInfo struct {
	run    string
	uptime time.Duration
	fault  error // why it must not vote
}

// parseInfo reads the fields of INFO that decide whether a server may vote.
func parseInfo(text string) serverInfo {
	f := map[string]string{}
	for row := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(row), ":"); ok {
			f[name] = value
		}
	}
	seconds, _ := strconv.ParseInt(f["uptime_in_seconds"], 10, 64)
	info := serverInfo{run: f["run_id"], uptime: time.Duration(min(max(0, seconds), int64(forever/time.Second))) * time.Second}
	switch {
	case info.run == "" || strings.ContainsAny(info.run, " ="):
		info.fault = reason("its INFO shows no run_id, so a restart could not be seen: use a Redis that has one, or WithRestartGuard(0)")
	case f["role"] != "master":
		info.fault = reason("it is a " + short(f["role"]) + ", not a master: a copy of another server must not vote; use independent masters")
	case f["cluster_enabled"] == "1":
		info.fault = reason("it is a cluster node: use servers with cluster-enabled no")
	case f["maxmemory"] != "0" && f["maxmemory_policy"] != "noeviction":
		info.fault = reason("it would evict locks (maxmemory-policy " + short(f["maxmemory_policy"]) +
			" with maxmemory " + short(f["maxmemory"]) + "): CONFIG SET maxmemory-policy noeviction")
	}
	return info
}

// short cuts a word that a server has made up.
func short(s string) string { return s[:min(len(s), maxNameInMessage)] }
