//go:build !linux

package tui

import tea "github.com/charmbracelet/bubbletea"

// suspend leaves it to bubbletea.
func (r *running) suspend(msg tea.Msg) tea.Msg { return msg }
