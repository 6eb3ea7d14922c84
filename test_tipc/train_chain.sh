#!/usr/bin/env bash
# The steps that the training chains share. Sourced after common_func.sh and start.

# infer_all EXPORTED NAME: tools/infer.py with every combination of device, engine, threads, batch size and precision.
infer_all() {
    local device engine threads batch precision command
    local images tool
    images=$(value --img-path)
    tool=$(value inference)
    for device in $(alternatives --device 2); do
        if [ "$device" = gpu ] && [ $HAS_GPU -eq 0 ]; then
            continue # the machine has none; a step that does not run is not reported
        fi
        for engine in $(alternatives --engine); do
            [ "$device" = gpu ] && [ "$engine" = onednn ] && continue
            for threads in $(alternatives --threads); do
                for batch in $(alternatives --batch-size 2); do
                    for precision in $(alternatives --precision); do
                        command="$PYTHON $tool --model-dir $1 --img-path $images --device $device --engine $engine"
                        command+=" --threads $threads --batch-size $batch --precision $precision$(flags --benchmark)"
                        run "infer_$2_${device}_${engine}_threads_${threads}_batch_${batch}_$precision" "$command"
                    done
                done
            done
        done
    done
}

# alternatives KEY [NTH]: the values of a line, apart.
alternatives() { value "$@" | tr '|' ' '; }

# train_command PROCESSES GPUS: how the trainer is started.
train_command() {
    if [ "$1" -eq 1 ]; then
        printf '%s' "$PYTHON"
    elif [[ "$(extra_train)" == *"--framework ref"* ]]; then
        printf '%s -m torch.distributed.run --nproc-per-node %s' "$PYTHON" "$1" # the launcher of the framework that trains
    elif [ $HAS_GPU -eq 1 ]; then
        printf '%s -m paddle.distributed.launch --gpus %s --log_dir %s/launch' "$PYTHON" "$2" "$OUTPUT"
    else
        printf '%s -m paddle.distributed.launch --nproc_per_node %s --log_dir %s/launch' "$PYTHON" "$1" "$OUTPUT"
    fi
}

# after_training WEIGHTS NAME: evaluate, export, infer.
after_training() {
    local exported=$OUTPUT/exported_$2
    # whole_infer takes weights of 1000 classes, of which lite_data's labels know nothing.
    if [ "$LIKE" != whole_infer ] && [ "$(value eval)" != null ]; then
        run "eval_$2" "$PYTHON $(value eval)$(flag --config "$(value --config 2)")$(flags --data-path) --pretrained $1"
    fi
    run "export_$2" "$PYTHON $(value norm_export) --pretrained $1 --output-dir $exported$(extra_export)" || return
    infer_all "$exported" "$2"
}

# extra_export: further flags of the export; a chain may define its own.
extra_export() { :; }

# extra_train: further flags of the training; a chain may define its own.
extra_train() { :; }

train_chain() {
    need norm_export eval inference --device --engine --threads --precision --img-path --data-path
    if [ "$LIKE" = whole_infer ]; then
        need pretrained_weights
        after_training "$(value pretrained_weights)" whole_infer
        return
    fi
    need trainer norm_train gpu_list train_model_name --config --epochs --batch-size --pretrained --amp-level
    local trainer gpus count name folder device command
    device=$([ $HAS_GPU -eq 1 ] && echo gpu || echo cpu)
    for trainer in $(alternatives trainer); do
        for gpus in $(alternatives gpu_list); do
            count=$(echo "$gpus" | tr ',' '\n' | wc -l)
            name=${trainer}_gpus_${gpus//,/_}
            folder=$OUTPUT/$name
            command="$(train_command "$count" "$gpus") $(value "$trainer")"
            command+="$(flags --config --data-path --epochs --batch-size --pretrained --amp-level) --device $device --output-dir $folder$(extra_train)"
            [ $HAS_GPU -eq 1 ] && [ "$count" -eq 1 ] && command="CUDA_VISIBLE_DEVICES=$gpus $command"
            run "train_$name" "$command" || continue # what would use these weights cannot run, and is not reported
            after_training "$folder/$(value train_model_name)" "$name"
        done
    done
}
