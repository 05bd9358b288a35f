//! The fuzz targets take anything.

#[test]
fn the_codec_takes_anything() {
    let random = xk_core::random::Random::new(5);
    for _ in 0..5000 {
        let mut data = vec![0; random.below(90) as usize];
        random.fill(&mut data);
        if let Some(offset) = data.get_mut(12) {
            *offset |= 0x50;
        }
        xk_tcp::fuzz::fuzz_wire(&data);
    }
}

#[test]
fn the_layer_takes_anything() {
    let random = xk_core::random::Random::new(3);
    for round in 0..600 {
        let mut data = Vec::new();
        for _ in 0..random.below(12) {
            let mut segment = vec![0; random.below(100) as usize];
            random.fill(&mut segment);
            // Most of them with ports that somebody takes, and the flags of an ordinary segment.
            if round % 4 != 0 && segment.len() >= 20 {
                let ports: [u8; 4] = [[0, 9, 0, 7], [0, 9, 0, 53]][(random.below(2)) as usize];
                segment[..4].copy_from_slice(&ports);
                segment[12] = 5 << 4;
                segment[13] = [2, 16, 16, 17, 24, 18][random.below(6) as usize];
            }
            data.push(segment.len() as u8);
            data.extend(segment);
        }
        xk_tcp::fuzz::fuzz_stack(&data);
    }
}
