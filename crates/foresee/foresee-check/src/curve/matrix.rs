//! The little of linear algebra that fits need.

/// Gauss's elimination with pivots; the last column is the right side.
pub(super) fn solve(mut a: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let n = a.len();
    for i in 0..n {
        let pivot = (i..n).max_by(|&p, &q| a[p][i].abs().total_cmp(&a[q][i].abs()))?;
        a.swap(i, pivot);
        if a[i][i].abs() < 1e-12 {
            return None;
        }
        for row in 0..n {
            if row != i {
                let factor = a[row][i] / a[i][i];
                let pivot = a[i].clone();
                for (x, y) in a[row].iter_mut().zip(&pivot).skip(i) {
                    *x -= factor * y;
                }
            }
        }
    }
    Some((0..n).map(|i| a[i][n] / a[i][i]).collect())
}

/// The inverse, where there is one.
pub(super) fn inverse(a: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let n = a.len();
    let column = |j: usize| {
        let with = |(i, row): (usize, &Vec<f64>)| {
            let mut row = row.clone();
            row.push(f64::from(u8::from(i == j)));
            row
        };
        solve(a.iter().enumerate().map(with).collect())
    };
    let columns: Vec<Vec<f64>> = (0..n).map(column).collect::<Option<_>>()?;
    Some((0..n).map(|i| columns.iter().map(|c| c[i]).collect()).collect())
}

/// The Cholesky factor of a covariance: a lower triangle, which times its transpose is the covariance.
pub(super) fn cholesky(a: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = a.len();
    let mut l = vec![vec![0.0; n]; n];
    for i in 0..n {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| l[i][k] * l[j][k]).sum();
            l[i][j] = if i == j { (a[i][i] - sum).max(1e-9).sqrt() } else { (a[i][j] - sum) / l[j][j] };
        }
    }
    l
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverse_and_root_give_back_the_matrix() {
        let a = vec![vec![4.0, 2.0, 0.5], vec![2.0, 3.0, -1.0], vec![0.5, -1.0, 2.0]];
        let (inverse, root) = (inverse(&a).unwrap(), cholesky(&a));
        for i in 0..3 {
            for j in 0..3 {
                let one: f64 = (0..3).map(|k| a[i][k] * inverse[k][j]).sum();
                let whole: f64 = (0..3).map(|k| root[i][k] * root[j][k]).sum();
                assert!((one - f64::from(u8::from(i == j))).abs() < 1e-9);
                assert!((whole - a[i][j]).abs() < 1e-9);
            }
        }
        assert_eq!(super::inverse(&[vec![1.0, 1.0], vec![1.0, 1.0]]), None);
    }
}
