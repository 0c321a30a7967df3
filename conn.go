package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// conn is one checked connection to a node. It belongs to the node's goroutine; only close may be called by others.
// It never redials: what is in flight, and in which order, can only be known on one connection.
type conn struct {
	wire   *wire
	client *redis.Client
	sticky *redis.Conn
	pipe   redis.Pipeliner
	time   *redis.TimeCmd // reused by every exchange
}

// nodeOptions turns the options of a user's client into those of our own connection: every timeout is the node
// timeout, nothing is retried, and what belongs to a shared client (hooks, limiter, caches) is left behind.
func nodeOptions(user *redis.Options, timeout time.Duration) *redis.Options {
	o := *user
	o.Protocol = 2 // our replies look the same in both; RESP3 adds frames that nobody asked for
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.ContextTimeoutEnabled = true
	o.PoolSize, o.PipelinePoolSize = 1, -1
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 0, 0, 0
	o.ConnMaxIdleTime, o.ConnMaxLifetime = -1, 0
	o.DisableIdentity = true
	o.Limiter = nil
	o.PushNotificationProcessor = nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ClientSideCacheConfig, o.ClientSideCache = nil, nil
	return &o
}

// newConn speaks to the server behind nc for the first time: it authenticates, loads the scripts and reads the server's
// clock and what the commands of looks show, if not nil, all before ctx ends. On an error nc is closed.
func newConn(ctx context.Context, nc net.Conn, opts *redis.Options, now func() instant, looks func() []redis.Cmder) (*conn, checked, error) {
	w := &wire{Conn: nc}
	c := &conn{wire: w, client: redis.NewClient(handOver(w, opts)), time: redis.NewTimeCmd(context.Background(), "time")}
	c.sticky = c.client.EphemeralConn()
	c.pipe = c.sticky.Pipeline()

	found, err := c.check(ctx, now, looks)
	if err != nil {
		c.close()
		return nil, checked{}, cmp.Or(w.turnedAway(), err)
	}
	return c, found, nil
}

// handOver are options whose only connection is the given one.
func handOver(w *wire, opts *redis.Options) *redis.Options {
	o := *opts
	handed := false
	o.Dialer = func(context.Context, string, string) (net.Conn, error) {
		if handed {
			return nil, errors.New("a sticky connection is not dialled again")
		}
		handed = true
		return w, nil
	}
	return &o
}

// checked is what a new connection has shown of its server.
type checked struct {
	clock sample
	look  look // only if asked for
}

// check fails with the server's own words where it cannot serve us: NOAUTH, NOPERM, LOADING and the like.
func (c *conn) check(ctx context.Context, now func() instant, looks func() []redis.Cmder) (_ checked, err error) {
	defer recoverReply(&err)
	asked := now()
	cmds := []redis.Cmder{c.time}
	for _, s := range loaded {
		cmds = append(cmds, redis.NewStringCmd(ctx, "script", "load", s.source))
	}
	if looks != nil {
		cmds = append(cmds, looks()...)
	}
	err = c.send(ctx, cmds)
	// Where the connection itself was refused no command has an answer; one that the server refused has its own error.
	if err != nil && (!isServerError(err) || errors.Is(c.time.Err(), errUnanswered)) {
		return checked{}, err
	}
	found := checked{clock: sample{asked: asked, heard: now()}}
	for i, s := range loaded {
		sha, err := cmds[i+1].(*redis.StringCmd).Result()
		if err != nil {
			return checked{}, err
		}
		if sha != s.sha {
			return checked{}, fmt.Errorf("SCRIPT LOAD answered another digest for script %d", i+1)
		}
	}
	var ok bool
	if found.clock.micros, ok = c.micros(); !ok {
		return checked{}, cmp.Or(c.time.Err(), error(reason("its clock shows an impossible time")))
	}
	if looks != nil {
		found.look = readLook(cmds[1+len(loaded):])
	}
	return found, nil
}

// micros is the server's time by the TIME of the last exchange, in microseconds since 1970.
func (c *conn) micros() (int64, bool) {
	micros := c.time.Val().UnixMicro()
	return micros, c.time.Err() == nil && micros > 0 && micros <= maxMicros
}

// exchange sends commands in one pipeline and reads their replies. Its error is that of the connection, nil where every
// command has a reply; a server's error stays with its command.
//
// Nothing is sent any more once an error has come within a reply: go-redis stops reading there if it knows the kind of
// error (OOM, NOPERM, READONLY and others, v9.23.0), and takes what is left of that reply for the next one. The answer to one
// request would be counted as another's.
func (c *conn) exchange(cmds []redis.Cmder) (err error) {
	if c.wire.shape.inner {
		return errReplyShape
	}
	defer recoverReply(&err)
	err = c.send(context.Background(), cmds)
	var server redis.Error
	if err == nil || errors.As(err, &server) {
		// go-redis returns the first command's error; the connection broke if a later one says so.
		for _, cmd := range cmds {
			if e := cmd.Err(); e != nil && !isServerError(e) {
				return e
			}
		}
		return nil
	}
	return err
}

// errUnanswered marks commands until their reply is read, however their pipeline ends.
const errUnanswered = reason("the connection ended before the reply")

func (c *conn) send(ctx context.Context, cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		cmd.SetErr(errUnanswered)
	}
	if err := c.pipe.BatchProcess(ctx, cmds...); err != nil {
		return err
	}
	_, err := c.pipe.Exec(ctx)
	return err
}

// close ends the connection; safe to call more than once and from any goroutine.
func (c *conn) close() {
	_ = c.wire.Close()
	_ = c.sticky.Close()
	_ = c.client.Close()
}

// isServerError says whether err is an error reply, as opposed to a connection that failed or spoke gibberish.
func isServerError(err error) bool {
	var server redis.Error
	return errors.As(err, &server)
}

func isNoScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// isTimeout says whether err means that the server did not answer in time, as opposed to a connection that was cut.
func isTimeout(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// recoverReply turns a panic below a connection (a parser fed with nonsense, a user's dialer or credentials provider)
// into an error: that node has failed, nothing else has.
func recoverReply(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("its connection panicked: %v", p)
	}
}
