//! Templates as maps and instructions: which one a frame fits, found by the system.
//!
//! Templates that are alike in what they compare and measure make one class. Its frames are found
//! by one look into a map: the key is what a frame has under the mask. A program looks through the
//! classes one by one, those that compare most first, as the module in this process does.

use std::io;

use xk_kit::net::template::{HeaderField, Template};
use xk_xdp::bpf::{
    Assembler, DATA, DATA_END, Function, Label, Map, MapKind, Operand, Operation, Register, Test,
    Width,
};

/// Largest number of classes of a table: as many as there are shapes of headers.
const CLASSES_MAX: usize = 16;
/// Octets of a value: a number, in this machine's order.
const VALUE_OCTETS: usize = 4;

/// Registers of a program: the first octet of the frame, what is behind its last one, and how many
/// there are.
pub(crate) const FRAME: Register = 7;
pub(crate) const END: Register = 8;
pub(crate) const OCTETS: Register = 9;
const STACK: Register = 10;

/// Octets of a frame that are compared at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    at: usize,
    width: Width,
    /// As a load of the octets gives it.
    mask: u64,
}

/// Common part of the templates of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    mask: Vec<u8>,
    /// Place of each length, and the offset from which on it counts.
    lengths: Vec<(usize, usize)>,
    padded_octets: usize,
    octets_max: usize,
}

impl Shape {
    fn of(template: &Template) -> Self {
        let lengths = template.fields().iter().filter_map(|(at, field)| match field {
            HeaderField::Length { from } => Some((usize::from(*at), usize::from(*from))),
            _ => None,
        });
        Self {
            mask: template.mask(),
            lengths: lengths.collect(),
            padded_octets: template.padded_octets(),
            octets_max: template.octets_max(),
        }
    }

    /// Pieces that are compared: no octet behind the header, for a frame may end there.
    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < self.mask.len() {
            let left = self.mask.len() - at;
            let all = [Width::Eight, Width::Four, Width::Two, Width::One];
            let width = all.into_iter().find(|width| width.octets() <= left);
            let width = width.unwrap_or(Width::One);
            let mask = loaded(&self.mask[at..at + width.octets()]);
            if mask != 0 {
                pieces.push(Piece { at, width, mask });
            }
            at += width.octets();
        }
        pieces
    }

    /// These octets, of a template or a frame, under the mask.
    fn key(&self, octets: &[u8]) -> Vec<u8> {
        let under = |piece: Piece| {
            let places = piece.at..piece.at + piece.width.octets();
            places.map(|at| octets.get(at).unwrap_or(&0) & self.mask.get(at).unwrap_or(&0))
        };
        self.pieces().into_iter().flat_map(under).collect()
    }

    fn bits(&self) -> u32 {
        self.mask.iter().map(|octet| octet.count_ones()).sum()
    }
}

struct Class {
    shape: Shape,
    /// From what a frame has under the mask to a number.
    values: Map,
    count: usize,
}

/// Templates, each with a number.
pub(crate) struct Table {
    classes: Vec<Class>,
    /// Templates of a class at most.
    entries_max: u32,
}

/// Work that a change of a table asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing: its program finds what is new.
    Entries,
    /// Another program.
    Classes,
}

impl Table {
    pub(crate) fn new(entries_max: u32) -> Self {
        Self { classes: Vec::new(), entries_max }
    }

    /// Has what fits a template lead to this number. A template of empty messages leads nowhere.
    ///
    /// # Errors
    /// Another one has what it fits (`AlreadyExists`); it compares nothing (`InvalidInput`); there
    /// are too many shapes of headers (`StorageFull`), or too many templates; what the system
    /// answers.
    pub(crate) fn add(&mut self, template: &Template, value: u32) -> io::Result<Change> {
        if template.octets_max() == 0 {
            return Ok(Change::Entries);
        }
        let shape = Shape::of(template);
        let key = shape.key(template.octets());
        if key.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let value = value.to_ne_bytes();
        if let Some(class) = self.classes.iter_mut().find(|class| class.shape == shape) {
            let is_there = class.values.get(&key, &mut [0; VALUE_OCTETS]).is_ok();
            if is_there {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            class.values.set(&key, &value)?;
            class.count += 1;
            return Ok(Change::Entries);
        }
        if self.classes.len() >= CLASSES_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let values = Map::new(MapKind::Hash, key.len(), VALUE_OCTETS, self.entries_max)?;
        values.set(&key, &value)?;
        let at = self.classes.partition_point(|other| other.shape.bits() >= shape.bits());
        self.classes.insert(at, Class { shape, values, count: 1 });
        Ok(Change::Classes)
    }

    /// Takes out what [`add`](Self::add) has put in for this template.
    pub(crate) fn remove(&mut self, template: &Template) -> Change {
        let shape = Shape::of(template);
        let Some(at) = self.classes.iter().position(|class| class.shape == shape) else {
            return Change::Entries;
        };
        let class = &mut self.classes[at];
        if class.values.remove(&class.shape.key(template.octets())).is_ok() {
            class.count -= 1;
        }
        if class.count > 0 {
            return Change::Entries;
        }
        self.classes.remove(at);
        Change::Classes
    }

    /// Loads [`FRAME`], [`END`] and [`OCTETS`] of the frame that register 1 tells of, as a program
    /// begins.
    pub(crate) fn begin(asm: &mut Assembler) {
        asm.set(6, Operand::Register(1));
        asm.call(Function::Octets);
        asm.set(OCTETS, Operand::Register(0));
        asm.load(Width::Four, FRAME, 6, DATA);
        asm.load(Width::Four, END, 6, DATA_END);
    }

    /// Goes on at `found`, with the address of the number in register 0, if the frame fits a
    /// template, and behind the last instruction if not. Registers 1 to 5 are used for it. False if
    /// no frame does: the system refuses programs with instructions that nothing leads to.
    pub(crate) fn find(&self, asm: &mut Assembler, found: Label) -> bool {
        for class in &self.classes {
            let next = asm.label();
            class.find(asm, next);
            asm.jump(found);
            asm.place(next);
        }
        !self.classes.is_empty()
    }
}

/// The value of a load of these octets.
fn loaded(octets: &[u8]) -> u64 {
    let mut word = [0; 8];
    let place = if cfg!(target_endian = "big") { 8 - octets.len() } else { 0 };
    word.iter_mut().skip(place).zip(octets).for_each(|(to, octet)| *to = *octet);
    u64::from_ne_bytes(word)
}

fn offset(octets: usize) -> i16 {
    // A header has at most 128 octets.
    i16::try_from(octets).unwrap_or(i16::MAX)
}

fn number(octets: usize) -> i32 {
    i32::try_from(octets).unwrap_or(i32::MAX)
}

impl Class {
    /// Goes on at `next` unless the frame fits a template of this class, whose number register 0
    /// points to.
    fn find(&self, asm: &mut Assembler, next: Label) {
        let shape = &self.shape;
        asm.jump_if(Test::Greater, OCTETS, number(shape.octets_max), next);
        asm.need(shape.mask.len(), [FRAME, END], next);
        let pieces = shape.pieces();
        let key_octets: usize = pieces.iter().map(|piece| piece.width.octets()).sum();
        let key = -offset(key_octets.next_multiple_of(8));
        let mut at = key;
        for piece in pieces {
            asm.load(piece.width, 1, FRAME, offset(piece.at));
            if piece.mask.count_ones() as usize != 8 * piece.width.octets() {
                asm.set_wide(2, piece.mask);
                asm.compute(Operation::And, 1, Operand::Register(2));
            }
            asm.store(piece.width, STACK, at, 1);
            at += offset(piece.width.octets());
        }
        asm.set_map(1, self.values.fd());
        asm.set(2, Operand::Register(STACK));
        asm.compute(Operation::Add, 2, i32::from(key));
        asm.call(Function::Find);
        asm.jump_if(Test::Equal, 0, 0, next);
        self.measure(asm, next);
    }

    /// Goes on at `next` unless the lengths that the headers name are the frame's own, or it is
    /// filled up as it may be.
    fn measure(&self, asm: &mut Assembler, next: Label) {
        let shape = &self.shape;
        if shape.lengths.is_empty() {
            return;
        }
        for (place, (at, from)) in shape.lengths.iter().enumerate() {
            // All are to name the same end as the first.
            let to = if place == 0 { 3 } else { 1 };
            asm.load(Width::Two, to, FRAME, offset(*at));
            asm.swap_16(to);
            asm.compute(Operation::Add, to, number(*from));
            if place > 0 {
                asm.jump_if(Test::Unequal, 1, Operand::Register(3), next);
            }
        }
        let fits = asm.label();
        asm.jump_if(Test::Equal, 3, Operand::Register(OCTETS), fits);
        asm.jump_if(Test::Less, 3, number(shape.mask.len()), next);
        asm.jump_if(Test::GreaterOrEqual, 3, Operand::Register(OCTETS), next);
        asm.jump_if(Test::Greater, OCTETS, number(shape.padded_octets), next);
        asm.place(fits);
    }
}
