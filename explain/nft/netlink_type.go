package nft

// valueType is what is known of a value in a register: its type, how wide it is, and whether it stands there in the
// byte order of the machine.
type valueType struct {
	Type
	bits int
	host bool
}

// typed is a value of a type, as wide as the type says and in its order.
func typed(t Type) valueType { return valueType{t, typeOf(t).bits, t.hostOrder()} }

// hostOrder tells whether values of the type stand in registers in the byte order of the machine (the byteorder of
// nft's datatypes and of its meta and ct templates, which follow what the kernel's expressions store:
// net/netfilter/nft_meta.c, nft_ct.c). Integers may stand in either.
func (t Type) hostOrder() bool {
	switch t {
	case TypeTime, TypeDate, TypeHour, TypeMark, TypeIfindex, TypeIftype, TypeRealm, TypeClassID, TypeUID, TypeGID,
		TypeCTState, TypeCTStatus, TypeCTLabel, TypeCTEvent, TypeDevgroup, TypeFibType, TypeCGroupV2, TypeString, TypeIfname:
		return true
	}
	return false
}

// isString tells types whose values are text: their bytes have one order.
func (t Type) isString() bool { return t == TypeString || t == TypeIfname }

// singleBits tells types whose bits are tested one by one. Those of a header that has no names for them are not
// (bitmask_type itself has no base type of bits).
func (t Type) singleBits() bool { return t.Flags() && t != TypeBitmask }

// size is how many bytes a value takes.
func (t valueType) size() int { return (t.bits + 7) / 8 }

// field is the type as the part of a key.
func (t valueType) field() Field { return Field{t.Type, t.size()} }

// hostInteger is a number of the machine.
func hostInteger(bits int) valueType { return valueType{TypeInteger, bits, true} }
