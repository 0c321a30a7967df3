package main

import (
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// newRoot builds the command tree.
func newRoot(stdout io.Writer, say *speaker) *cobra.Command {
	root := &cobra.Command{
		Use:   "redlock",
		Short: "Locks over independent Redis nodes, decided by majority",
		Long: `redlock takes locks over independent Redis nodes: no replication between them, a
majority decides.

  redlock drill                     watch a lock while nodes go away; needs no Redis
  redlock drill NAME --nodes ...    the same, scenario by scenario, on your own nodes
  redlock run KEY -- COMMAND ...    run a command under a lock`,
		Version:           version(),
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exitf(exitUsage, "%v; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(newDrill(stdout), newRun(say), newReport(), newHolder(os.Stdin, stdout))
	return root
}

// version is what the module was built as.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
