#!/bin/bash
# A grid of 10,000 buses in 100 zones, on four machines of 25 ranks each:  sbatch examples/slurm.sh
#SBATCH --job-name=tacit
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=25
#SBATCH --cpus-per-task=1
#SBATCH --time=01:00:00

module load openmpi               # the MPI that mpi4py finds: pip install 'tacit[mpi]'
source "$HOME/tacit/bin/activate"
export OMP_NUM_THREADS=1          # a rank is one core; --workers 1 below, for the same reason

OUT="$SLURM_SUBMIT_DIR/case10000-$SLURM_JOB_NAME"   # on a disk that rank 0 can write to
if [ -f "$OUT/checkpoint.npz" ]; then               # requeued, or stopped at the time limit
    RUN=(--resume "$OUT")
else
    RUN=(case10000_goc --zones 100 --total-epsilon 1 --total-delta 1e-5 --workers 1 --out "$OUT")
fi
# if one rank dies, all end at once, and the run can be resumed
srun --kill-on-bad-exit=1 tacit power solve "${RUN[@]}" --engine mpi
