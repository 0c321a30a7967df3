package redlocktest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// clean shows one of the keys that are left.
func (c *checked) clean() *Violation {
	var left []Record
	for _, r := range c.records {
		if r.Kind == Left {
			left = append(left, r)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return &Violation{Rule: RuleClean, Text: fmt.Sprintf("a key of %s is left on %s", quoted(left[0].Resources), left[0].Node),
		Records: c.story(left[0]), More: len(left) - 1}
}

// story is what is known of the hold of a key that is left.
func (c *checked) story(left Record) []Record {
	for _, s := range c.spans {
		if left.Hold == "" || s.acquired.Hold != left.Hold {
			continue
		}
		return append(append([]Record{s.acquired}, recordsOf(s.finish)...), left)
	}
	return []Record{left} // nobody was ever given it: an acquire that failed and was not undone
}

// LookForLeft asks the servers for keys that begin with prefix (that of the locks:
// "lock:" by default), records each as [Left], and returns how many there are. Call
// it when nothing may be left: a TTL after the last fault was healed and the last
// lock given back. The library's own record on each node, which stays, is not
// counted. The error says which servers could not be asked.
func (h *History) LookForLeft(ctx context.Context, prefix string, servers ...*redis.Client) (int, error) {
	var errs []error
	count := 0
	for _, server := range servers {
		n, err := h.lookOn(ctx, prefix, server)
		count += n
		if err != nil {
			errs = append(errs, fmt.Errorf("redlocktest: looking for keys on %s: %w", server.Options().Addr, err))
		}
	}
	return count, errors.Join(errs...)
}

func (h *History) lookOn(ctx context.Context, prefix string, server *redis.Client) (int, error) {
	const own = "redlock:node" // what the library keeps on each node, under its prefix
	seen := map[string]bool{}  // SCAN may name a key twice
	keys := server.Scan(ctx, 0, escapeGlob(prefix)+"*", 1000).Iterator()
	count := 0
	for keys.Next(ctx) {
		key := keys.Val()
		if key == prefix+own || seen[key] {
			continue
		}
		seen[key] = true
		token, err := server.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			continue // gone meanwhile
		}
		r := Record{Kind: Left, Node: server.Options().Addr, Resources: []string{strings.TrimPrefix(key, prefix)}, Hold: token}
		var refused redis.Error
		switch {
		case errors.As(err, &refused):
			r.Text = refused.Error() // not a string
		case err != nil:
			return count, err
		}
		h.Add(r)
		count++
	}
	return count, keys.Err()
}

// escapeGlob takes the special meaning from what Redis' patterns give one to.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
