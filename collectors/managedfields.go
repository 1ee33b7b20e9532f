package collectors

// withoutManagedFields returns an object as the API server writes it without metadata.managedFields: who wrote
// which field is half of every object's bytes, and kubectl does not show it either. What is no object comes back
// as it is.
func withoutManagedFields(object []byte) []byte {
	const key = `"managedFields":[`
	depth, start := 0, -1
	inMetadata := false
	for i := 0; i < len(object); i++ {
		switch object[i] {
		case '"':
			end := endOfString(object, i)
			if depth == 1 && string(object[i:min(end, len(object))]) == `"metadata"` {
				inMetadata = true
			} else if depth == 1 && end < len(object) && object[end] == ':' {
				inMetadata = false
			}
			if depth == 2 && inMetadata && start < 0 && len(object)-i >= len(key) && string(object[i:i+len(key)]) == key {
				start = i
			}
			i = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if start >= 0 && depth == 2 && object[i] == ']' {
				return cutOut(object, start, i+1)
			}
		}
	}
	return object
}

// cutOut removes object[start:end] with one comma beside it.
func cutOut(object []byte, start, end int) []byte {
	switch {
	case end < len(object) && object[end] == ',':
		end++
	case start > 0 && object[start-1] == ',':
		start--
	}
	out := make([]byte, 0, len(object)-(end-start))
	return append(append(out, object[:start]...), object[end:]...)
}

// endOfString is the index behind the string that begins at i.
func endOfString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}
