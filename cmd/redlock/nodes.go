package main

import (
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

// envNodes holds the nodes' URLs, for run. It is not handed on to the command.
const envNodes = "REDLOCK_NODES"

// sources is where the list of nodes may come from. At most one of the flags; they go before the environment.
type sources struct {
	flag []string
	file string
	env  bool // whether the environment counts
}

func (s *sources) register(f *pflag.FlagSet) {
	f.StringArrayVar(&s.flag, "nodes", nil, "the nodes' `URLS`, separated by commas; no passwords here")
	f.StringVar(&s.file, "nodes-file", "", "read the nodes' URLs from `FILE`, one a line, # for comments")
}

// urls returns the nodes' URLs. Its errors never quote an entry: it may hold a password.
func (s *sources) urls() ([]string, error) {
	var list []string
	switch {
	case len(s.flag) > 0 && s.file != "":
		return nil, exitf(exitUsage, "--nodes and --nodes-file exclude each other")
	case len(s.flag) > 0:
		raw := strings.Join(s.flag, ",")
		if hasPassword(raw) {
			return nil, exitf(exitUsage, "--nodes holds a password, which everybody on this machine can read in the list of "+
				"processes: %s instead", s.refuge())
		}
		list = split(raw)
	case s.file != "":
		text, err := os.ReadFile(s.file)
		if err != nil {
			return nil, exitf(exitUsage, "--nodes-file: %v", err)
		}
		if list, err = lines(string(text)); err != nil {
			return nil, err
		}
	case s.env:
		list = split(os.Getenv(envNodes))
	}
	for i, u := range list {
		if !strings.Contains(u, "://") {
			list[i] = "redis://" + u
		}
	}
	return list, nil
}

func (s *sources) given() bool { return len(s.flag) > 0 || s.file != "" }

// refuge is where a password may go.
func (s *sources) refuge() string {
	if s.env {
		return "put the URLs into the environment variable " + envNodes + " or into a file for --nodes-file"
	}
	return "put the URLs into a file for --nodes-file"
}

func split(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || strings.ContainsRune(" \t\r\n", r) })
}

// lines reads a file of nodes.
func lines(text string) ([]string, error) {
	var list []string
	for i, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") {
		fields := strings.Fields(line)
		for at, f := range fields {
			if strings.HasPrefix(f, "#") {
				fields = fields[:at]
				break
			}
		}
		switch {
		case len(fields) > 1 || len(fields) == 1 && strings.Contains(fields[0], ",") && strings.Count(fields[0], "://") > 1:
			return nil, exitf(exitUsage, "--nodes-file: line %d holds more than one URL; give each a line of its own", i+1)
		case len(fields) == 1:
			list = append(list, fields[0])
		}
	}
	return list, nil
}

// beginning is where an entry of a list can begin.
var beginning = regexp.MustCompile(`(^|[,\s])[A-Za-z][A-Za-z0-9+.-]*://`)

// hasPassword says whether a list of URLs holds a password: a colon before an @, or password=. A password may itself
// hold commas, slashes and whatever else should have been encoded, so this looks at the whole text and not at what it
// parses to; where in doubt it says yes.
func hasPassword(list string) bool {
	if strings.Contains(strings.ToLower(list), "password=") {
		return true
	}
	starts := beginning.FindAllStringIndex(list, -1)
	from := 0
	for i := 0; i <= len(starts); i++ {
		to := len(list)
		if i < len(starts) {
			to = starts[i][0]
		}
		entry := list[from:to]
		if at := strings.LastIndex(entry, "@"); at >= 0 && strings.Contains(entry[:at], ":") {
			return true
		}
		if i < len(starts) {
			from = starts[i][1]
		}
	}
	return false
}
