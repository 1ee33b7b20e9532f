package check

import (
	"fmt"
	"slices"
	"strings"
)

// once appends what a list does not hold yet.
func once[T comparable](list []T, item T) []T {
	if slices.Contains(list, item) {
		return list
	}
	return append(list, item)
}

// list joins words, the first most of them.
func list(words []string, most int) string {
	if len(words) > most {
		return strings.Join(words[:most], ", ") + fmt.Sprintf(" and %d more", len(words)-most)
	}
	return strings.Join(words, ", ")
}

// several names the first few of a list. One more is named rather than counted.
func several(words []string) string {
	const few = 5
	if len(words) == few+1 {
		return list(words, few+1)
	}
	return list(words, few)
}

// plural counts things.
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
