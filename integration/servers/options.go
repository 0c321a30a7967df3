package servers

import "fmt"

// Option chooses how the servers of a set are started.
type Option func(*config)

type config struct {
	name     string   // of the test, for labels
	provider Provider // "" if the test does not mind
	password string
	args     []string // for redis-server, after our own
	persist  persistence
	unix     bool // a unix socket beside the port
	clock    bool // a wall clock of its own
}

// persistence is what a server keeps on disk.
type persistence string

const (
	inMemory persistence = ""
	aof      persistence = "WithAOF"
	rdb      persistence = "WithRDB"
)

// WithProvider asks for one kind of server, whatever REDLOCK_TEST_PROVIDER says. Mostly to go through [Providers].
func WithProvider(p Provider) Option {
	return func(c *config) { c.provider = p }
}

// WithPassword makes the servers ask for a password. URL and Client carry it.
func WithPassword(password string) Option {
	return func(c *config) { c.password = password }
}

// WithArgs adds arguments for redis-server, such as "--maxmemory", "2mb". They win over our own. A password goes
// through [WithPassword], so that it is known how to ask the server.
func WithArgs(args ...string) Option {
	return func(c *config) { c.args = append(c.args, args...) }
}

// WithAOF makes the servers write an append-only file, synced once a second, so that RestartKeeping finds what was
// answered; but for a write that came while the one before was being synced, which a kill may lose.
func WithAOF() Option {
	return func(c *config) { c.persist = aof }
}

// WithRDB lets RestartKeeping start from the last snapshot. The test takes it, by SAVE; the servers never do by
// themselves.
func WithRDB() Option {
	return func(c *config) { c.persist = rdb }
}

// WithUnixSocket makes each server listen on a unix socket too, see [Server.SocketURL]. Processes only.
func WithUnixSocket() Option {
	return func(c *config) { c.unix = true }
}

// WithClock gives each server a wall clock of its own, see [Server.StepClock]. Its TIME and its keys go by it, and it
// keeps what it was set to across a restart. For processes that takes Linux and a C compiler: without, the test is
// skipped, or fails where CI=true. Containers cannot have it.
func WithClock() Option {
	return func(c *config) { c.clock = true }
}

// serverArgs returns what every redis-server is started with, followed by a provider's and the test's own.
func (c config) serverArgs(own ...string) []string {
	args := []string{"--save", "", "--appendonly", "no"}
	if c.persist == aof {
		args[3] = "yes"
	}
	if c.password != "" {
		args = append(args, "--requirepass", c.password)
	}
	return append(append(args, own...), c.args...)
}

// unmet names the first option that a kind of server cannot have.
func (c config) unmet(p Provider) error {
	var what string
	switch {
	case c.unix && p != Processes:
		what = "a unix socket (WithUnixSocket)"
	case c.clock && p == Containers:
		what = "clocks of their own (WithClock)"
	case p != Embedded:
		return nil
	case c.persist != inMemory:
		what = fmt.Sprintf("data on disk (%s)", c.persist)
	case len(c.args) > 0:
		what = "arguments for redis-server (WithArgs)"
	default:
		return nil
	}
	return fmt.Errorf("%s cannot have %s; set %s to a kind that can", p, what, providerEnv)
}
