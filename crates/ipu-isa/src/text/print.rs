//! Instructions to text.

use crate::decode::Decoded;
use crate::form::{Broadcast, Class, Form, Operands, Post};

/// A branch target as a byte address in hexadecimal, the form people read.
pub fn byte_target(word_address: u32) -> String {
    format!("{:#x}", u64::from(word_address) << 2)
}

/// A branch target as the number that the field holds, the form that assembles to itself.
pub fn word_target(word_address: u32) -> String {
    word_address.to_string()
}

/// A register operand of this class.
pub fn print_register(class: Class, number: i32) -> String {
    let post = |post: Post| match post {
        Post::PlusEqual => "+=",
        Post::PlusPlus => "++",
        Post::Shift => ">>",
        Post::At => "@",
    };
    match class {
        Class::M => format!("$m{number}"),
        Class::A => format!("$a{number}"),
        Class::MPair => format!("$m{number}:{}", number + 1),
        Class::APair => format!("$a{number}:{}", number + 1),
        Class::AQuad => format!("$a{number}:{}", number + 3),
        Class::ABroadcast(Broadcast::B) => format!("$a{number}:B"),
        Class::ABroadcast(Broadcast::Lower) => format!("$a{number}:BL"),
        Class::ABroadcast(Broadcast::Upper) => format!("$a{number}:BU"),
        Class::MPost(suffix) => format!("$m{number}{}", post(suffix)),
        Class::MPairPost(suffix) => format!("$m{number}:{}{}", number + 1, post(suffix)),
        _ => number.to_string(),
    }
}

fn print_operand(class: Class, value: i32, target: &mut dyn FnMut(u32) -> String) -> String {
    match class {
        Class::Br19 | Class::Call20 => target(value as u32),
        Class::Iz12 => (value as u32).to_string(),
        class => print_register(class, value),
    }
}

/// The mnemonic to print, and how many leading operands to print with it; aliases are preferred.
fn alias(form: &Form, ops: &Operands) -> (String, usize) {
    let all = form.operands.len() + 2 * (form.words() - 1);
    let (name, shown) = match (form.key, *ops) {
        ("setzi M", [14, 0, ..]) => ("nop", 0),
        ("setzi A", [13, 0, ..]) => ("fnop", 0),
        ("or M" | "or A", [_, 15, 15, ..]) | ("or64 A", [_, 14, 14, ..]) => ("zero", 1),
        ("or M zi" | "or A zi", [_, _, 0, ..]) | ("or64 A", [_, _, 14, ..]) => ("mov", 2),
        ("atom M", _) => ("mov", 2),
        ("movz M", _) => ("movnz", all),
        ("uget A", _) => ("get", all),
        ("put M", [255, 15, ..]) => ("strap", 0),
        ("uput A", _) => ("put", all),
        ("roll16 M" | "roll16 A", [_, a, b, ..]) if a == b => ("swap16", 2),
        // Without the suffix these would assemble to the sign-extended or the low form.
        ("add M zi" | "cmpeq M zi" | "max M zi" | "min M zi", [_, _, value, ..])
        | ("sub M zi", [_, value, ..])
            if value < 0x8000 =>
        {
            return (format!("{}z", form.mnemonic), all);
        }
        ("and A iz" | "andc A iz" | "or A iz" | "or M iz", [_, _, 0, ..]) => {
            return (format!("{}.iz", form.mnemonic), all);
        }
        _ => (form.mnemonic, all),
    };
    (name.to_string(), shown)
}

/// The text of an instruction; `target` writes branch targets from their word address.
pub fn print(decoded: &Decoded, target: &mut dyn FnMut(u32) -> String) -> String {
    let form = decoded.form();
    let (mut text, shown) = alias(form, &decoded.ops);
    for (index, &value) in decoded.ops.iter().enumerate().take(shown) {
        text.push_str(if index == 0 { " " } else { ", " });
        let class = form
            .operands
            .get(index)
            .map_or(Class::Zi(18), |operand| operand.class);
        text.push_str(&print_operand(class, value, target));
    }
    text
}
