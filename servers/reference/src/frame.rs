//! RFC 6455 frames (section 5): bytes in, frames out, and back. Knows no message, endpoint or socket.

/// The largest payload of a frame, and of a whole message.
pub const LARGEST: u64 = 16 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

pub struct Frame<'a> {
    pub fin: bool,
    pub opcode: Opcode,
    pub mask: [u8; 4],
    pub masked: &'a [u8],
    /// Header and payload.
    pub bytes: usize,
}

/// A close code: why the connection must fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation(pub u16);
pub const PROTOCOL_ERROR: Violation = Violation(1002);
pub const INVALID_DATA: Violation = Violation(1007);
pub const TOO_BIG: Violation = Violation(1009);

pub enum Parsed<'a> {
    Frame(Frame<'a>),
    /// Not all of it is here; `wanted` bytes are needed from its start, as far as is known.
    Incomplete {
        wanted: usize,
    },
}

pub fn parse(input: &[u8]) -> Result<Parsed<'_>, Violation> {
    let &[first, second, ..] = input else { return Ok(Parsed::Incomplete { wanted: 2 }) };
    let opcode = opcode(first & 0x0f)?;
    let fin = first & 0x80 != 0;
    let short = u64::from(second & 0x7f);
    let reserved = first & 0x70 != 0;
    let unmasked = second & 0x80 == 0;
    let bad_control = opcode as u8 >= 8 && (!fin || short > 125);
    if reserved || unmasked || bad_control {
        return Err(PROTOCOL_ERROR);
    }
    let (length, header) = match short {
        126 => match input.get(2..4) {
            Some(bytes) => (u64::from(u16::from_be_bytes(bytes.try_into().expect("2 bytes"))), 8),
            None => return Ok(Parsed::Incomplete { wanted: 8 }),
        },
        127 => match input.get(2..10) {
            Some(bytes) => (u64::from_be_bytes(bytes.try_into().expect("8 bytes")), 14),
            None => return Ok(Parsed::Incomplete { wanted: 14 }),
        },
        short => (short, 6),
    };
    // The shortest form is demanded of the sender (5.2), and the highest bit must be 0.
    if (short == 126 && length < 126) || (short == 127 && (length < 65_536 || length >> 63 != 0)) {
        return Err(PROTOCOL_ERROR);
    }
    if length > LARGEST {
        return Err(TOO_BIG);
    }
    let bytes = header + usize::try_from(length).expect("at most 16 MiB");
    match input.get(header..bytes) {
        None => Ok(Parsed::Incomplete { wanted: bytes }),
        Some(masked) => {
            let mask = input[header - 4..header].try_into().expect("4 bytes");
            Ok(Parsed::Frame(Frame { fin, opcode, mask, masked, bytes }))
        }
    }
}

fn opcode(bits: u8) -> Result<Opcode, Violation> {
    Ok(match bits {
        0 => Opcode::Continuation,
        1 => Opcode::Text,
        2 => Opcode::Binary,
        8 => Opcode::Close,
        9 => Opcode::Ping,
        10 => Opcode::Pong,
        _ => return Err(PROTOCOL_ERROR),
    })
}

/// Appends the header of an unmasked frame.
pub fn push_header(output: &mut Vec<u8>, fin: bool, opcode: Opcode, length: usize) {
    let first = u8::from(fin) << 7 | opcode as u8;
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length @ 0..=125), _) => output.extend_from_slice(&[first, length]),
        (_, Ok(length)) => {
            let [high, low] = length.to_be_bytes();
            output.extend_from_slice(&[first, 126, high, low]);
        }
        _ => {
            output.extend_from_slice(&[first, 127]);
            output.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

/// Appends a whole unmasked frame.
pub fn push_frame(output: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    push_header(output, true, opcode, payload.len());
    output.extend_from_slice(payload);
}

/// Appends `masked`, unmasked.
///
/// Block by block, so that the exclusive-or finds the copy in the first-level cache: a large message passes through memory once, and no
/// byte is written twice to a cold line. Blocks are a multiple of 4 long, which keeps the mask in phase.
pub fn unmask_into(output: &mut Vec<u8>, masked: &[u8], mask: [u8; 4]) {
    output.reserve(masked.len());
    for block in masked.chunks(8192) {
        let start = output.len();
        output.extend_from_slice(block);
        unmask(&mut output[start..], mask);
    }
}

fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let mut words = bytes.chunks_exact_mut(8);
    for word in &mut words {
        let value = u64::from_ne_bytes((&*word).try_into().expect("8 bytes"));
        word.copy_from_slice(&(value ^ wide).to_ne_bytes());
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}
