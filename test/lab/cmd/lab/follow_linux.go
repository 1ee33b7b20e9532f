package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// follow prints lines as they come until one says that the lab is up, or the program behind them ended.
func follow(in io.Reader, ended <-chan struct{}) error {
	lines := bufio.NewReader(in)
	var line strings.Builder
	over := false
	for {
		part, err := lines.ReadString('\n')
		line.WriteString(part)
		if err == nil {
			fmt.Print(line.String())
			if strings.TrimSpace(line.String()) == isUp {
				return nil
			}
			line.Reset()
			continue
		}
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("follow the lab in the background: %w", err)
		}
		if over { // and read to its end
			return errors.New("it did not come up; what it says is above")
		}
		select {
		case <-ended:
			over = true
		case <-time.After(50 * time.Millisecond): // until there is more to read
		}
	}
}
