//! Draws graph files: as text, or as SVG if the first argument is `--svg`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let catalog = xk_catalog::Catalog::standard();
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let svg = files.first().is_some_and(|first| first == "--svg");
    for file in files.drain(usize::from(svg)..) {
        let source = std::fs::read_to_string(&file)?;
        let graph = xk_compose::check(&source, &file, &catalog)?;
        if svg {
            print!("{}", xk_compose::draw_svg(&graph, None));
        } else {
            print!("{}", xk_compose::draw_text(&graph, None, 110));
        }
    }
    Ok(())
}
