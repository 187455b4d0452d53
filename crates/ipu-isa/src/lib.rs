//! One instruction table: encode, decode, print, parse, slot, issue cost; number formats.
