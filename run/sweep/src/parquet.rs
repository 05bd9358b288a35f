//! The table of a sweep as Parquet.

use crate::folder::Folder;
use crate::row::Row;
use crate::table::{Cell, Column, Trouble, cells};
use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Rows that are in memory at a time.
const GROUP: usize = 8192;

impl From<ParquetError> for Trouble {
    fn from(error: ParquetError) -> Self {
        Self::Io(io::Error::other(error))
    }
}

/// Returns the type by which Parquet keeps it.
fn kind(column: &Column) -> (Physical, Repetition, ConvertedType) {
    match column {
        Column::Parameter(_, true) | Column::Figure(_) | Column::Ended => {
            (Physical::DOUBLE, Repetition::OPTIONAL, ConvertedType::NONE)
        }
        Column::Seed | Column::Fault(_) => {
            (Physical::INT64, Repetition::OPTIONAL, ConvertedType::UINT_64)
        }
        _ => (Physical::BYTE_ARRAY, Repetition::OPTIONAL, ConvertedType::UTF8),
    }
}

/// Writes a row for each run that has ended.
pub(crate) fn write(folder: &Folder, columns: &[Column], file: File) -> Result<(), Trouble> {
    let fields = columns.iter().map(|column| {
        let (physical, repetition, converted) = kind(column);
        let name = column.name();
        let built = Type::primitive_type_builder(&name, physical)
            .with_repetition(repetition)
            .with_converted_type(converted);
        built.build().map(Arc::new)
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("table").with_fields(fields).build()?;
    // The writer's version is no part of a table.
    let properties = WriterProperties::builder().set_created_by("xk sweep".into()).build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let mut rows = folder.rows();
    loop {
        let group = rows.by_ref().take(GROUP).collect::<Result<Vec<Row>, _>>()?;
        if group.is_empty() {
            break;
        }
        let mut rows: Vec<_> = group.iter().map(|row| cells(columns, row)).collect();
        let mut out = writer.next_row_group()?;
        while let Some(mut into) = out.next_column()? {
            fill(into.untyped(), rows.iter_mut().filter_map(Iterator::next))?;
            into.close()?;
        }
        out.close()?;
    }
    writer.close()?;
    Ok(())
}

/// Writes the cells of a column: 1 where there is one, 0 where there is none.
fn fill<'a>(
    into: &mut ColumnWriter<'_>,
    cells: impl Iterator<Item = Cell<'a>>,
) -> Result<(), ParquetError> {
    let (mut texts, mut numbers, mut wholes, mut levels) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for cell in cells {
        levels.push(i16::from(!matches!(cell, Cell::Nothing)));
        match cell {
            Cell::Text(text) => texts.push(ByteArray::from(text)),
            Cell::Number(number) => numbers.push(number),
            // The type of the column says that it has no sign.
            Cell::Whole(number) => wholes.push(number as i64),
            Cell::Nothing => {}
        }
    }
    match into {
        ColumnWriter::ByteArrayColumnWriter(into) => into.write_batch(&texts, Some(&levels), None),
        ColumnWriter::DoubleColumnWriter(into) => into.write_batch(&numbers, Some(&levels), None),
        ColumnWriter::Int64ColumnWriter(into) => into.write_batch(&wholes, Some(&levels), None),
        _ => Err(ParquetError::General("a column of another type".into())),
    }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::table::{tests::filled, write};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use std::fs::File;

    #[test]
    fn parquet_has_the_cells_of_the_text() {
        let (at, folder) = filled(&[0, 1, 2, 3]);
        write(&folder).unwrap();
        let file = File::open(at.path().join("table.parquet")).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[2].get_double(0).unwrap(), 0.05);
        assert_eq!(rows[3].get_string(4).unwrap(), "a, \"b\"");
        assert_eq!(rows[3].get_ulong(6).unwrap(), 3);
        assert!(rows[3].get_double(7).is_err(), "no figure is no zero");
        assert_eq!(rows[2].get_double(7).unwrap(), 0.25);
    }
}
