//! Where a tracepoint's record has its fields: the file `format` in tracefs,
//! Documentation/trace/events.rst.

use super::CacheTraceError;
use crate::bpf::instruction::{Assembler, Operation, Register, Width};

/// Where the fields of `mm_filemap_add_to_page_cache` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) inode: Field,
    pub(super) index: Field,
    pub(super) device: Field,
    pub(super) order: Field,
}

/// An unsigned number within a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    offset: usize,
    /// `None` if no record has it: it is always 0.
    width: Option<Width>,
}

impl Format {
    /// If the kernel has `large_folios`, its records must give their order.
    pub(super) fn parse(text: &str, large_folios: bool) -> Result<Self, CacheTraceError> {
        let field = |name| Field::find(text, name);
        let format = Self {
            inode: field("i_ino")?,
            index: field("index")?,
            device: field("s_dev")?,
            order: Field {
                offset: 0,
                width: None,
            },
        };
        match Field::is_named(text, "order") {
            true => Ok(Self {
                order: field("order")?,
                ..format
            }),
            false if large_folios => Err(CacheTraceError::NoOrder),
            false => Ok(format),
        }
    }
}

impl Field {
    /// Parses the line `field:unsigned long i_ino; offset:16; size:8; signed:0;`.
    pub(crate) fn find(text: &str, name: &str) -> Result<Self, CacheTraceError> {
        Self::parse(text, name).ok_or_else(CacheTraceError::strange_format)
    }

    fn parse(text: &str, name: &str) -> Option<Self> {
        let line = lines(text).find(|&(declared, _)| declared == name)?.1;
        let value = |key| {
            line.split(';')
                .find_map(|part| part.trim().strip_prefix(key))
        };
        let number = |key| value(key)?.parse::<usize>().ok();
        Some(Self {
            offset: number("offset:")?,
            width: Some(match number("size:")? {
                1 => Width::One,
                2 => Width::Two,
                4 => Width::Four,
                8 => Width::Eight,
                _ => return None,
            }),
        })
    }

    fn is_named(text: &str, name: &str) -> bool {
        lines(text).any(|(declared, _)| declared == name)
    }

    /// Emits a load of this field from the record that a register points to.
    pub(super) fn load(self, program: &mut Assembler, to: Register, record: Register) {
        let Some(width) = self.width else {
            return program.compute(Operation::Move, to, 0);
        };
        // The kernel's verifier refuses this offset for one that is too large.
        let offset = i16::try_from(self.offset).unwrap_or(i16::MAX);
        program.load(width, to, record, offset);
    }

    pub(crate) fn read(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..)?;
        Some(match self.width {
            None => 0,
            Some(Width::One) => u64::from(*bytes.first()?),
            Some(Width::Two) => u64::from(u16::from_ne_bytes(*bytes.first_chunk()?)),
            Some(Width::Four) => u64::from(u32::from_ne_bytes(*bytes.first_chunk()?)),
            Some(Width::Eight) => u64::from_ne_bytes(*bytes.first_chunk()?),
        })
    }
}

/// The declared names, each with the rest of its line.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let (declaration, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
        Some((declaration.split_whitespace().last()?, rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folio that was added.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Folio {
        device: u32,
        inode: u64,
        index: u64,
        order: u32,
    }

    impl Format {
        /// The folio of a record; `None` if the record is too short or makes no sense.
        fn folio(&self, record: &[u8]) -> Option<Folio> {
            Some(Folio {
                device: u32::try_from(self.device.read(record)?).ok()?,
                inode: self.inode.read(record)?,
                index: self.index.read(record)?,
                order: u32::try_from(self.order.read(record)?)
                    .ok()
                    .filter(|&order| order < u64::BITS)?,
            })
        }
    }

    /// From Linux 6.18.
    const TEXT: &str = "name: mm_filemap_add_to_page_cache
ID: 600
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned long i_ino;\toffset:16;\tsize:8;\tsigned:0;
\tfield:unsigned long index;\toffset:24;\tsize:8;\tsigned:0;
\tfield:dev_t s_dev;\toffset:32;\tsize:4;\tsigned:0;
\tfield:unsigned char order;\toffset:36;\tsize:1;\tsigned:0;

print fmt: \"dev %d:%d ino %lx pfn=0x%lx ofs=%lu order=%u\", REC->order
";

    #[test]
    fn fields_are_found_and_read() {
        let format = Format::parse(TEXT, true).unwrap();
        let mut record = [0; 40];
        record[16..24].copy_from_slice(&0x1_0000_0007_u64.to_ne_bytes());
        record[24..32].copy_from_slice(&99_u64.to_ne_bytes());
        record[32..36].copy_from_slice(&(254_u32 << 20 | 1).to_ne_bytes());
        record[36] = 8;
        let folio = Folio {
            device: 254 << 20 | 1,
            inode: 0x1_0000_0007,
            index: 99,
            order: 8,
        };
        assert_eq!(format.folio(&record), Some(folio));
        assert_eq!(format.folio(&record[..36]), None);
        assert_eq!(format.folio(&[]), None);
        record[36] = 64;
        assert_eq!(format.folio(&record), None);
    }

    #[test]
    fn fields_may_stand_elsewhere() {
        // From a 32-bit kernel, with a wider order.
        let text = "\tfield:unsigned int order;\toffset:8;\tsize:4;\tsigned:0;
\tfield:dev_t s_dev;\toffset:12;\tsize:4;\tsigned:0;
\tfield:unsigned long index;\toffset:16;\tsize:4;\tsigned:0;
\tfield:unsigned long i_ino;\toffset:20;\tsize:4;\tsigned:0;";
        let record: Vec<u8> = [0, 0, 1, 2, 3, 4_u32]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        let folio = Folio {
            device: 2,
            inode: 4,
            index: 3,
            order: 1,
        };
        assert_eq!(
            Format::parse(text, true).unwrap().folio(&record),
            Some(folio)
        );
    }

    #[test]
    fn a_missing_order_is_told() {
        let (without, _) = TEXT.split_once("\tfield:unsigned char order").unwrap();
        let error = Format::parse(without, true).unwrap_err();
        assert!(matches!(error, CacheTraceError::NoOrder), "{error}");
        // Before there were large folios, each was a page.
        let format = Format::parse(without, false).unwrap();
        assert_eq!(format.folio(&[0xa5; 36]).unwrap().order, 0);
    }

    fn is_refused(text: &str) -> bool {
        matches!(Format::parse(text, true), Err(CacheTraceError::Other(..)))
    }

    #[test]
    fn nonsense_is_refused() {
        let (before_device, _) = TEXT.split_once("\tfield:dev_t").unwrap();
        for text in ["", "field:", "field:;", "\0", before_device] {
            assert!(is_refused(text), "{text}");
        }
        let odd = TEXT.replace("offset:36;\tsize:1", "offset:36;\tsize:3");
        assert!(is_refused(&odd));
        let huge = TEXT.replace("offset:32", "offset:99999999999999999999999");
        assert!(is_refused(&huge));
        let beyond = TEXT.replace("offset:32", &format!("offset:{}", usize::MAX));
        assert_eq!(Format::parse(&beyond, true).unwrap().folio(&[0; 40]), None);
        for end in 0..TEXT.len() {
            // Cut off anywhere, it must not panic, nor read beyond a record.
            if let Ok(format) = Format::parse(&TEXT[..end], true) {
                format.folio(&[0; 40]);
            }
        }
    }

    #[test]
    fn any_text_gives_fields_within_the_record_or_none() {
        dropbehind_testbed::fuzz("tests/corpus/trace_format", |text| {
            let Ok(format) = Format::parse(&String::from_utf8_lossy(text), true) else {
                return;
            };
            for len in [0, 8, 40, 4096] {
                let folio = format.folio(&vec![0xa5; len]);
                let reaches = |field: Field| field.offset.checked_add(field.bytes());
                let fields = [format.inode, format.index, format.device, format.order];
                let fits = fields
                    .into_iter()
                    .all(|field| reaches(field).is_some_and(|end| end <= len));
                assert!(fits || folio.is_none(), "{format:?} {len}");
            }
        });
    }

    impl Field {
        fn bytes(self) -> usize {
            match self.width {
                None => 0,
                Some(Width::One) => 1,
                Some(Width::Two) => 2,
                Some(Width::Four) => 4,
                Some(Width::Eight) => 8,
            }
        }
    }
}
