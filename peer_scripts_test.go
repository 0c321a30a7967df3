package redlock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The scripts, rewritten in Go for the model server. That the real ones do the same is shown in integration/.

// batch is scripts/batch.lua in Go. p.mu must be held.
func (p *peer) batch(args []string) (reply string, cut bool) {
	n, _ := strconv.Atoi(args[0])
	keys, args := args[1:n], args[n:]
	state, marker, latest, args := args[0], args[1], args[2], args[3:]
	all := fmt.Sprintf("*%d\r\n", n)
	for _, key := range keys {
		name, ttl, k := args[0], "", 2
		switch name {
		case "release":
		case "renew":
			ttl, k = args[4], 5
		default:
			name, ttl, k = "acquire", name, 4
		}
		p.counts[name]++
		if raw := p.raw[name]; raw != "" {
			return raw, false
		}
		one := ""
		if name == "release" {
			one = p.script(name, []string{key}, args[1:2])
		} else if p.errs[name] == "" {
			one = p.script(name, []string{key, state}, []string{args[1], ttl, latest, marker, args[2], args[3]})
		}
		if e := p.errs[name]; e != "" {
			one = "-" + e + "\r\n"
		}
		args = args[k:]
		if p.drop == name {
			p.drop, cut = "", true
		}
		switch lines := strings.Split(one, "\r\n"); {
		case strings.HasPrefix(one, "-"):
			one = bulk(lines[0][1:])
		case name == "acquire" && strings.HasPrefix(one, "*3"):
			one = "*2\r\n" + lines[1] + "\r\n" + lines[3] + "\r\n"
		case name == "acquire" && len(lines[0]) > 3 && lines[0][0] == ':':
			one = ":1\r\n"
		}
		all += one
	}
	return all + fmt.Sprintf(":%d\r\n", p.now().UnixMicro()), cut
}

// script is scripts/*.lua in Go. p.mu must be held.
func (p *peer) script(name string, keys, args []string) string {
	token, late, missing, steady := args[0], false, 0, true
	if name != "release" {
		keys = keys[:len(keys)-1]
		latest, _ := strconv.ParseInt(args[2], 10, 64)
		late = p.now().Unix() > latest
		steady = args[3] == "" || p.fields["marker"] == args[3]
		if m := p.fields["marker"]; args[3] == "" && m != "" {
			return bulk(m)
		}
	}
	if late {
		return ":-1\r\n"
	}
	if name == "acquire" && !steady {
		return ":-2\r\n"
	}
	deleted := 0
	for i, k := range keys {
		v, ok := p.get(k)
		switch {
		case name == "release":
			if ok && !v.foreign && v.s == token {
				delete(p.keys, k)
				deleted++
			}
		case !ok:
			missing++
		case name == "acquire" && v.foreign:
			return "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
		case v.s != token && name == "acquire":
			left := int64(-1)
			if !v.expires.IsZero() {
				left = v.expires.Sub(p.now()).Milliseconds()
			}
			return fmt.Sprintf("*2\r\n:%d\r\n:%d\r\n", i+1, left)
		case v.s != token && !steady:
			return ":-2\r\n"
		case v.s != token:
			return ":0\r\n"
		}
	}
	if name == "release" {
		return fmt.Sprintf(":%d\r\n", deleted)
	}
	fence := args[4]
	if name == "acquire" {
		top := ""
		for _, s := range args[5:] {
			top = max(top, p.fields[s])
		}
		n, _ := strconv.ParseUint(top, 10, 64)
		switch {
		case top >= fence && n >= maxFence:
			return ":-3\r\n"
		case top >= fence:
			fence = fenceText(n + 1)
		case fence == fenceText(0):
			fence = fenceText(1)
		}
	}
	for _, s := range args[5:] {
		p.fields[s] = max(p.fields[s], fence)
	}
	refill := name == "renew" && missing > 0
	ms, _ := strconv.ParseInt(args[1], 10, 64)
	for _, k := range keys {
		v, ok := p.get(k)
		switch {
		case ok && name == "acquire" && v.expires.Sub(p.now()).Milliseconds() >= ms:
		default:
			p.set(k, token, args[1])
		}
	}
	switch {
	case name == "acquire" && fence == args[4]:
		return fmt.Sprintf(":%d\r\n", p.now().UnixMicro())
	case name == "acquire":
		n, _ := strconv.ParseUint(fence, 10, 64)
		return fmt.Sprintf("*3\r\n:0\r\n:%d\r\n:%d\r\n", p.now().UnixMicro(), n)
	case !steady:
		return ":3\r\n"
	case refill:
		return ":2\r\n"
	}
	return ":1\r\n"
}

// mark is scripts/mark.lua in Go. p.mu must be held.
func (p *peer) mark(args []string) string {
	if now := p.fields["marker"]; now != args[0] {
		return bulk(now)
	}
	for pair := range slices.Chunk(args[2:], 2) {
		p.fields[pair[0]] = max(p.fields[pair[0]], pair[1])
	}
	p.fields["marker"] = args[1]
	return ":1\r\n"
}
