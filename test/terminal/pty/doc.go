// Package pty gives tests a terminal, a pseudo terminal of the kernel: a program runs on one end of it, and the test sits
// at the other, types, and sees what is on the screen.
package pty
