package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
)

// kubectlCompletion is what kubectl (1.26 and later) runs to complete the words behind `kubectl svcnet`; it has to lie
// on PATH under this name.
const (
	kubectlCompletion     = "#!/bin/sh\n# Completes `kubectl svcnet` in kubectl's own completion. Lies on PATH beside kubectl-svcnet.\nexec kubectl svcnet __complete \"$@\"\n"
	kubectlCompletionName = "kubectl_complete-svcnet"
)

// completion adds to cobra's command, which prints scripts for shells, what kubectl wants for a plugin.
func (a *app) completion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil || c == root {
		return
	}
	var install bool
	c.Long += "\nFor `kubectl svcnet` kubectl's own completion asks an executable " + kubectlCompletionName + " on PATH (kubectl 1.26 and later): " +
		"--install-kubectl writes it beside this program and prints where.\n"
	c.Flags().BoolVar(&install, "install-kubectl", false, "Write "+kubectlCompletionName+" beside this program, which completes `kubectl svcnet`")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !install {
			return c.Help()
		}
		dir, err := pluginFolder()
		if err != nil {
			return err
		}
		file, err := installCompletion(dir)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.Out, file)
		return err
	}
}

// pluginFolder is where kubectl finds the plugin: the folder on PATH. The program itself may be behind a link, as krew
// makes it.
func pluginFolder() (string, error) {
	if runtime.GOOS == "windows" {
		return "", errors.New("install the completion for kubectl: Windows does not run scripts without an ending, and kubectl looks for no other; use `svcnet completion powershell`")
	}
	if p, err := exec.LookPath("kubectl-svcnet"); err == nil {
		return filepath.Dir(p), nil
	}
	p, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w (put it on PATH as kubectl-svcnet)", err)
	}
	return filepath.Dir(p), nil
}

// installCompletion writes the script into dir and returns its path. A file of that name that does something else stays.
func installCompletion(dir string) (string, error) {
	file := filepath.Join(dir, kubectlCompletionName)
	switch old, err := os.ReadFile(file); {
	case err == nil && !strings.Contains(string(old), "svcnet __complete"):
		return "", fmt.Errorf("write %s: there is another file of this name (remove it first)", file)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read %s: %w (remove it first)", file, plainCause(err))
	}
	err := os.WriteFile(file, []byte(kubectlCompletion), 0o755)
	if err == nil {
		// The mode of a file that was there stays what it was.
		err = os.Chmod(file, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("write %s: %w (run as a user who may write there, or put %s on PATH by hand)", file, plainCause(err), kubectlCompletionName)
	}
	return file, nil
}

// plainCause is the error of the file system without the path, which the message has already.
func plainCause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
