//! Several futures at once, within the task of the caller: when it is dropped,
//! so are they.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Waits for all of them; answers are in their order.
pub(crate) async fn together<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut waiting: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut answers: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, answer) in waiting.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(output) = future.as_mut().poll(context)
            {
                *answer = Some(output);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_run_at_once_and_answers_keep_their_order() {
        let begun = tokio::time::Instant::now();
        let sleep = |seconds| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            seconds
        };
        assert_eq!(together(vec![sleep(3), sleep(1), sleep(2)]).await, [3, 1, 2]);
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
        assert!(together(Vec::<std::future::Ready<()>>::new()).await.is_empty());
    }
}
