//! Provisioned throughput: manual, autoscale, and the change between them.

use perihelion_client::{ContainerProperties, ErrorKind, Throughput};

use crate::account::TestAccount;

pub(crate) async fn scenario(account: &TestAccount) {
    let properties = ContainerProperties::new("fixed", "/pk").with_throughput(Throughput::manual(400));
    let fixed = account.container(properties).await;
    assert_eq!(fixed.throughput().await.unwrap().unwrap().throughput, Throughput::manual(400));
    assert_eq!(
        fixed.replace_throughput(Throughput::manual(500)).await.unwrap().throughput,
        Throughput::manual(500)
    );
    assert_eq!(fixed.throughput().await.unwrap().unwrap().throughput, Throughput::manual(500));

    let scaling = fixed.replace_throughput(Throughput::autoscale(4000)).await.unwrap();
    assert_eq!(scaling.throughput, Throughput::autoscale(4000));
    assert_eq!(fixed.throughput().await.unwrap().unwrap().throughput, Throughput::autoscale(4000));
    let back = fixed.replace_throughput(Throughput::manual(600)).await.unwrap();
    assert_eq!(back.throughput, Throughput::manual(600));

    let properties = ContainerProperties::new("scaling", "/pk").with_throughput(Throughput::autoscale(1000));
    let scaling = account.container(properties).await;
    assert_eq!(scaling.throughput().await.unwrap().unwrap().throughput, Throughput::autoscale(1000));

    assert!(account.database.throughput().await.unwrap().is_none());
    let refused = account.database.replace_throughput(Throughput::manual(400)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Input);
}
