resume=() # a restarted job continues from its last checkpoint
for file in "$RUN"/checkpoints/step-*.npz; do
    [ ! -e "$file" ] || resume=(--resume "$RUN")
done
