//! Tensors: construction, reads, reshapes, and refused requests.

#[path = "../../tests/devices/mod.rs"]
mod devices;

use std::time::Duration;

use devices::on_devices;
use fusion_runtime::{Device, Error, Shape, Tensor};

#[test]
fn elements_survive_the_way_there_and_back() {
    on_devices(|device| {
        for len in [0, 1, 3, 16, 31, 4097] {
            let values: Vec<i32> = (0..len).map(|i| i * 7 - 3).collect();
            let tensor = Tensor::from_vec(device, values.clone(), values.len()).unwrap();
            assert_eq!(tensor.to_vec().unwrap(), values);
            assert_eq!((tensor.len(), tensor.is_empty()), (values.len(), len == 0));
        }
        let nan = Tensor::from_slice(device, &[f32::from_bits(0x7fc0_1234)], ()).unwrap();
        assert_eq!(nan.item().unwrap().to_bits(), 0x7fc0_1234);
        Ok(())
    });
}

#[test]
fn filled_tensors() {
    on_devices(|device| {
        assert_eq!(Tensor::<f32>::zeros(device, [2, 3]).unwrap().to_vec().unwrap(), [0.0; 6]);
        let large = Tensor::full(device, 9u32, 700_001).unwrap().to_vec().unwrap();
        assert!(large.len() == 700_001 && large.iter().all(|&x| x == 9));
        // Reused memory is filled anew.
        drop(Tensor::full(device, 1.5f32, 5).unwrap());
        assert_eq!(Tensor::<f32>::zeros(device, 5).unwrap().to_vec().unwrap(), [0.0; 5]);
        Ok(())
    });
}

#[test]
fn wrong_numbers_of_elements_are_refused() {
    on_devices(|device| {
        let shape = Shape::from([2, 2]);
        let expect = Error::Shape { elements: 3, shape: shape.clone() };
        assert_eq!(Tensor::from_slice(device, &[1.0f32; 3], [2, 2]).err(), Some(expect.clone()));
        let three = Tensor::from_slice(device, &[1.0f32; 3], 3).unwrap();
        assert_eq!(three.reshape([2, 2]).err(), Some(expect));
        assert!(matches!(three.item(), Err(Error::NotOne { .. })));
        assert!(matches!(three.copy_to_slice(&mut [0.0; 2]), Err(Error::Shape { .. })));
        assert_eq!(three.reshape([3, 1]).unwrap().shape(), &[3, 1]);
        Ok(())
    });
}

#[test]
fn impossible_sizes_are_errors() {
    on_devices(|device| {
        for shape in [Shape::from([usize::MAX, 3]), Shape::from(usize::MAX / 8), Shape::from([usize::MAX, 0])]
        {
            assert!(matches!(Tensor::<f32>::zeros(device, shape), Err(Error::TooLarge { .. })));
        }
        let got = Tensor::<f32>::zeros(device, 1usize << 58);
        assert!(matches!(got, Err(Error::OutOfMemory { .. })), "{got:?}");
        Ok(())
    });
}

#[test]
fn times_are_those_of_the_work() {
    let pause = Duration::from_millis(5);
    let time = Device::cpu().time(|| {
        std::thread::sleep(pause);
        Ok(())
    });
    assert!(time.unwrap() >= pause);
    let wrong = Device::cpu().time(|| Tensor::<f32>::zeros(&Device::cpu(), usize::MAX).map(drop));
    assert!(matches!(wrong, Err(Error::TooLarge { .. })), "{wrong:?}");
}

#[test]
fn devices_are_one_of_a_kind_and_threads_may_share_tensors() {
    fn shared<T: Send + Sync>(_: &T) {}
    assert_eq!(Device::cpu(), Device::cpu());
    let tensor = Tensor::<f32>::zeros(&Device::best(), 4).unwrap();
    shared(&tensor);
    assert_eq!(tensor.to(&Device::cpu()).unwrap().to_vec().unwrap(), [0.0; 4]);
    assert_eq!(Device::best(), Device::best());
}
