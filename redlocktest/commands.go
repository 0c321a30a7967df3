package redlocktest

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
)

// redisVersion is what INFO says; the same that the embedded server's HELLO says.
const redisVersion = "8.4.0"

// execute runs a command: most by the server, some with corrections, a few by
// ourselves. e.run must be held.
func (e *engine) execute(c *server.Peer, s *session, cmd string, args []string) {
	sub := ""
	if len(args) > 0 {
		sub = strings.ToUpper(args[0])
	}
	switch {
	case cmd == "INFO":
		e.own(c, s, cmd, func() { e.writeInfo(c, args) })
	case cmd == "CLIENT" && sub == "SETINFO":
		e.own(c, s, cmd, func() { c.WriteOK() })
	case cmd == "CLIENT" && sub == "ID":
		e.own(c, s, cmd, func() { c.WriteInt(int(s.id)) })
	case cmd == "HELLO" && !slices.ContainsFunc(args, isAuth) && !s.multi && !e.admitted(c):
		c.WriteError("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
	case strings.HasPrefix(cmd, "EVAL"):
		c.WriteRaw(scriptError(e.capture(c, cmd, args), cmd, args))
	case (cmd == "FLUSHALL" || cmd == "FLUSHDB") && sub == "SYNC":
		e.dispatch(c, s, cmd, args[1:]) // the server knows ASYNC only
	case cmd == "MULTI":
		reply := e.capture(c, cmd, args)
		s.multi = s.multi || strings.HasPrefix(reply, "+OK")
		c.WriteRaw(reply)
	case cmd == "EXEC" && s.dirty:
		e.capture(c, "DISCARD", nil)
		s.multi, s.dirty = false, false
		c.WriteError("EXECABORT Transaction discarded because of previous errors.")
	default:
		e.dispatch(c, s, cmd, args)
		if cmd == "EXEC" || cmd == "DISCARD" {
			s.multi, s.dirty = false, false
		}
	}
}

func isAuth(arg string) bool { return strings.EqualFold(arg, "AUTH") }

// own answers a command that the server does not know, for those who may ask.
func (e *engine) own(c *server.Peer, s *session, cmd string, answer func()) {
	if s.multi {
		s.dirty = true
		c.WriteError("ERR redlocktest cannot queue " + cmd)
		return
	}
	if refusal := e.capture(c, "ECHO", []string{""}); strings.HasPrefix(refusal, "-") {
		c.WriteRaw(refusal)
		return
	}
	answer()
}

// admitted reports whether the connection has given its password, if one is needed.
func (e *engine) admitted(c *server.Peer) bool {
	return !strings.HasPrefix(e.capture(c, "ECHO", []string{""}), "-NOAUTH")
}

// nested sees the commands that scripts call. Faults that name a command reach
// it there too, so that a script can be made to fail half way. The server's own
// lock is held here.
func (e *engine) nested(c *server.Peer, cmd string, args []string) bool {
	if reply := e.node.faults.failure(cmd, false); reply != "" {
		c.WriteError(reply)
		return true
	}
	if cmd == "INFO" {
		e.writeInfo(c, args)
		return true
	}
	return false
}

// The server reports what goes wrong while a script runs as a compile error,
// with the position in front, and with a stack trace that compile errors lack.
var runtimeError = regexp.MustCompile(`^-ERR Error compiling script \(new function\): (?:[^:]*:(\d+): )?(.*?) stack traceback:.*\r\n$`)

// An error of a command begins with its code: WRONGTYPE, OOM, ERR.
var errorCode = regexp.MustCompile(`^[A-Z]+ `)

// scriptError puts the error of a script into the words of Redis, above all
// with its code in front. Other replies pass unchanged.
func scriptError(reply, cmd string, args []string) string {
	m := runtimeError.FindStringSubmatch(reply)
	if m == nil {
		return reply
	}
	text, at := m[2], "@user_script"
	if m[1] != "" {
		at += ":" + m[1]
	}
	if !errorCode.MatchString(text) {
		text = "ERR " + at[1:] + ": " + text
	}
	sha := args[0]
	if !strings.HasPrefix(cmd, "EVALSHA") {
		sum := sha1.Sum([]byte(args[0])) // the name of a script, by definition
		sha = hex.EncodeToString(sum[:])
	}
	return "-" + text + " script: " + sha + ", on " + at + ".\r\n"
}

// infoSections are the sections of INFO in their order, with their fields.
var infoSections = []struct {
	name   string
	fields []string
}{
	{"Server", []string{"redis_version", "redis_mode", "run_id", "tcp_port", "uptime_in_seconds", "uptime_in_days"}},
	{"Clients", []string{"connected_clients", "maxclients"}},
	{"Memory", []string{"used_memory", "maxmemory", "maxmemory_policy"}},
	{"Persistence", []string{"loading", "rdb_last_bgsave_status", "aof_enabled"}},
	{"Stats", []string{"total_commands_processed", "evicted_keys"}},
	{"Replication", []string{"role", "connected_slaves"}},
	{"Cluster", []string{"cluster_enabled"}},
}

// info returns all fields of INFO, with those that the test has set.
func (e *engine) info() map[string]string {
	_, port, _ := net.SplitHostPort(e.node.Addr())
	uptime := int64(e.node.clock.now().Sub(e.started).Seconds())
	e.mu.Lock()
	clients := len(e.sessions)
	e.mu.Unlock()
	fields := map[string]string{
		"redis_version":            redisVersion,
		"redis_mode":               "standalone",
		"run_id":                   e.runID,
		"tcp_port":                 port,
		"uptime_in_seconds":        fmt.Sprint(uptime),
		"uptime_in_days":           fmt.Sprint(uptime / 86400),
		"connected_clients":        fmt.Sprint(clients),
		"maxclients":               fmt.Sprint(maxConnections),
		"used_memory":              "1048576",
		"maxmemory":                "0",
		"maxmemory_policy":         "noeviction",
		"loading":                  "0",
		"rdb_last_bgsave_status":   "ok",
		"aof_enabled":              "0",
		"total_commands_processed": fmt.Sprint(e.node.Requests("")),
		"evicted_keys":             "0",
		"role":                     "master",
		"connected_slaves":         "0",
		"cluster_enabled":          "0",
	}
	maps.Copy(fields, e.node.faults.infoFields())
	return fields
}

// writeInfo answers INFO [section ...].
func (e *engine) writeInfo(c *server.Peer, args []string) {
	wanted := map[string]bool{}
	for _, a := range args {
		wanted[strings.ToLower(a)] = true
	}
	all := len(args) == 0 || wanted["all"] || wanted["default"] || wanted["everything"]
	fields := e.info()
	var parts []string
	for _, section := range infoSections {
		if !all && !wanted[strings.ToLower(section.name)] {
			continue
		}
		part := "# " + section.name + "\r\n"
		for _, f := range section.fields {
			part += f + ":" + fields[f] + "\r\n"
		}
		parts = append(parts, part)
	}
	text := strings.Join(parts, "\r\n")
	if c.Resp3 {
		c.WriteRaw(fmt.Sprintf("=%d\r\ntxt:%s\r\n", len(text)+4, text))
		return
	}
	c.WriteBulk(text)
}
