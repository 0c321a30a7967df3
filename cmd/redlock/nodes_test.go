package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPasswordsInAListAreSeen(t *testing.T) {
	for _, list := range []string{
		"redis://:secret@a:6379",
		"redis://user:secret@a:6379",
		"redis://a:6379,redis://user:secret@b:6379",
		"redis://user:secret@a:6379,redis://b:6379",
		"redis://user:sec,ret@a:6379",
		"redis://user:sec/ret@a:6379",
		"redis://user:sec//ret@a:6379",
		"redis://user:sec@ret@a:6379",
		"redis://user:sec ret@a:6379",
		"user:secret@a:6379",
		":secret@a:6379,b:6379",
		"unix://user:secret@/tmp/s",
		"redis://a:6379?password=secret",
		"redis://a:6379?x=1&PassWord=secret",
	} {
		require.True(t, hasPassword(list), list)
	}
	for _, list := range []string{
		"a:6379,b:6379",
		"redis://a:6379,redis://b:6379,c:6379",
		"redis://user@a:6379,redis://user@b:6379",
		"a:6379 redis://user@b:6379",
		"rediss://[::1]:6379/2?protocol=2",
		"unix:///tmp/a@b.sock",
	} {
		require.False(t, hasPassword(list), list)
	}
}

func TestARefusedPasswordIsNotRepeated(t *testing.T) {
	s := sources{flag: []string{"redis://a:1", "redis://u:hunter2@b:1"}, env: true}
	_, err := s.urls()
	require.ErrorContains(t, err, envNodes)
	require.NotContains(t, err.Error(), "hunter2")
}

func TestNodesComeFromOneSource(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes")
	require.NoError(t, os.WriteFile(file, []byte("# five of them\r\nredis://u:p%23w@a:1\r\n\r\n  b:2   # the second\n"), 0o600))
	t.Setenv(envNodes, "c:3, redis://u:p@d:4\n\te:5 ")
	for _, c := range []struct {
		name string
		s    sources
		want []string
	}{
		{"environment", sources{env: true}, []string{"redis://c:3", "redis://u:p@d:4", "redis://e:5"}},
		{"environment that does not count", sources{}, nil},
		{"flag before environment", sources{flag: []string{"a:1,unix:///s", "b:2"}, env: true}, []string{"redis://a:1", "unix:///s", "redis://b:2"}},
		{"file before environment", sources{file: file, env: true}, []string{"redis://u:p%23w@a:1", "redis://b:2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.s.urls()
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	_, err := (&sources{flag: []string{"a:1"}, file: file}).urls()
	require.ErrorContains(t, err, "exclude each other")
	_, err = (&sources{file: file + ".no"}).urls()
	require.ErrorContains(t, err, "--nodes-file")
}

func TestALineOfAFileHoldsOneURL(t *testing.T) {
	for _, text := range []string{"a:1\nredis://u:hunter2@b:2 redis://c:3\n", "a:1\nredis://u:hunter2@b:2,redis://c:3"} {
		_, err := lines(text)
		require.ErrorContains(t, err, "line 2")
		require.NotContains(t, err.Error(), "hunter2")
	}
}
