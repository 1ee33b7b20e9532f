// Package labtest gives tests a lab of their own.
package labtest
