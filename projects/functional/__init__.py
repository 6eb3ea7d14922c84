"""Ten parts of networks whose forward does more than to call layers, ported to Paddle; and mistakes in what lies between."""
