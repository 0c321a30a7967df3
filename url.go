package redlock

import (
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// parseURL reads a node's URL. Its errors never quote any of it: the part that does not parse may be the password.
func parseURL(s string) (*redis.Options, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, reason("its URL does not parse; write redis://user:password@host:port/db, with every special character of the password percent-encoded")
	}
	switch u.Scheme {
	case "redis", "rediss", "unix":
	default:
		return nil, reason("its URL begins with none of redis://, rediss:// and unix://")
	}
	if u.Fragment != "" {
		return nil, reason("its URL has a #; in a password write it as %23")
	}
	o, err := redis.ParseURL(s)
	if err == nil {
		return o, nil
	}
	switch {
	case u.Scheme == "unix":
		return nil, reason("its URL does not fit unix://user:password@/path/to/redis.sock?db=0")
	case strings.Trim(u.Path, "/") != "" && !digits(strings.Trim(u.Path, "/")):
		return nil, reason("its URL must end in a database number, as in redis://host:port/0")
	}
	return nil, reason("its URL has a query parameter that go-redis does not know or cannot read")
}

func digits(s string) bool {
	return strings.Trim(s, "0123456789") == ""
}
